package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/go-viper/mapstructure/v2"
	"go.yaml.in/yaml/v3"
)

// configFileBytesMax bounds the configuration file: it is written by hand.
const configFileBytesMax = 1024 * 1024

// yamlParser lets koanf read YAML with the library that the rest of the module uses.
type yamlParser struct{}

// Unmarshal reads a mapping; an empty file is an empty mapping.
func (yamlParser) Unmarshal(data []byte) (map[string]any, error) {
	if len(data) > configFileBytesMax {
		return nil, errors.New("the file is larger than 1 MiB")
	}
	out := map[string]any{}
	if err := yaml.Unmarshal(data, &out); err != nil {
		return nil, err
	}
	return out, nil
}

// Marshal is needed by the interface and by nobody here.
func (yamlParser) Marshal(value map[string]any) ([]byte, error) { return yaml.Marshal(value) }

// readSecret reads a key from a file, as orchestrators mount them: one line, perhaps
// with a line end.
func readSecret(path string) (string, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the operator names the file
	if err != nil {
		return "", fmt.Errorf("read the key file: %w", err)
	}
	for len(data) > 0 && (data[len(data)-1] == '\n' || data[len(data)-1] == '\r') {
		data = data[:len(data)-1]
	}
	if len(data) == 0 {
		return "", fmt.Errorf("the key file %s is empty", path)
	}
	return string(data), nil
}

// strictDecoder reads numbers and booleans from text, which is all that the environment
// has, and refuses fields of a key that do not exist.
func strictDecoder(result any) *mapstructure.DecoderConfig {
	return &mapstructure.DecoderConfig{
		Result: result, TagName: "koanf", WeaklyTypedInput: true, ErrorUnused: true,
		DecodeHook: mapstructure.StringToSliceHookFunc(","),
	}
}
