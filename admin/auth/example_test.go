package auth_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/peeklock/peeklock/admin/auth"
	"github.com/peeklock/peeklock/fsm"
)

func ExampleSign() {
	expiry := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	fmt.Println(auth.Sign("sb://localhost/orders", "till", "a secret of 16 bytes or more", expiry))
	// Output: SharedAccessSignature sr=sb%3A%2F%2Flocalhost%2Forders&sig=AI68AMXYsri2E8IF1Arhyan7uZKL3z8Q%2FZTV7Pp8Sxs%3D&se=1798761600&skn=till
}

func ExampleParseAudience() {
	resource, err := auth.ParseAudience("sb://Broker.example:5671/Orders/$management")
	fmt.Println(resource.Host, resource.Path, err)
	_, err = auth.ParseAudience("other?://host/mine")
	fmt.Println(errors.Is(err, fsm.InvalidArgument))
	// Output:
	// broker.example orders/$management <nil>
	// true
}
