package golden

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"
)

// filler sets every encoded field to a non-zero value. The values depend only on the order of the
// fields in their struct, so adding a field at the end leaves the others unchanged.
type filler struct {
	samples map[reflect.Type]reflect.Value
	serial  int
}

func (f *filler) fill(v reflect.Value) error {
	if sample, ok := f.samples[v.Type()]; ok {
		v.Set(sample)
		return nil
	}
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Date(2026, 11, 20, 12, 30, 45, 0, time.UTC)))
		return nil
	}
	if p := reflect.PointerTo(v.Type()); p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return fmt.Errorf("%s encodes itself: give a sample of it", v.Type())
	}
	f.serial++
	kind := v.Kind()
	switch {
	case kind == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(int64(f.serial))
	case v.CanUint():
		v.SetUint(uint64(f.serial))
	case v.CanFloat():
		v.SetFloat(float64(f.serial) + 0.5)
	case kind == reflect.String:
		v.SetString(fmt.Sprintf("text %d", f.serial))
	case kind == reflect.Interface && v.NumMethod() == 0:
		v.Set(reflect.ValueOf(fmt.Sprintf("anything %d", f.serial)))
	case kind == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return f.fill(v.Elem())
	default:
		return f.fillComposite(v)
	}
	return nil
}

func (f *filler) fillComposite(v reflect.Value) error {
	kind := v.Kind()
	if kind == reflect.Struct {
		return f.fillFields(v)
	}
	if kind == reflect.Map {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		err := errors.Join(f.fill(key), f.fill(value))
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
		return err
	}
	if kind == reflect.Slice {
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	} else if kind != reflect.Array {
		return fmt.Errorf("%s has no encoding: give a sample of it", v.Type())
	}
	for i := range v.Len() {
		if err := f.fill(v.Index(i)); err != nil {
			return err
		}
	}
	return nil
}

func (f *filler) fillFields(v reflect.Value) error {
	defer func(before int) { f.serial = before }(f.serial)
	f.serial = 0
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Tag.Get("json") == "-" || !field.IsExported() && !field.Anonymous {
			continue
		}
		if err := f.fill(v.Field(i)); err != nil {
			return fmt.Errorf("%s: %w", field.Name, err)
		}
	}
	return nil
}
