package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// A Duration is a Go duration as text, which may also have days: "15s", "1h30m" or "2d". Empty: no duration,
// which is null in JSON.
type Duration string

// DurationOf returns d as a Duration.
func DurationOf(d time.Duration) Duration { return Duration(d.String()) }

// Parse returns the length of the duration. An empty duration is zero.
func (d Duration) Parse() (time.Duration, error) {
	if d == "" {
		return 0, nil
	}
	days, rest, ok := strings.Cut(string(d), "d")
	if !ok {
		return time.ParseDuration(string(d))
	}
	n, err := strconv.ParseFloat(days, 64)
	if err != nil {
		return 0, fmt.Errorf("client: %q is not a duration", string(d))
	}
	whole := time.Duration(n * float64(24*time.Hour))
	if rest == "" {
		return whole, nil
	}
	part, err := time.ParseDuration(rest)
	return whole + part, err
}

// An Optional is a field of a change: left out, null, or a value. The zero Optional is left out.
type Optional[T any] struct {
	value T
	state byte
}

const (
	optionalNull  = 'n'
	optionalValue = 'v'
)

// Set returns an Optional with a value.
func Set[T any](value T) Optional[T] { return Optional[T]{value, optionalValue} }

// Null returns an Optional that is null. In a change, null removes the field's value.
func Null[T any]() Optional[T] { return Optional[T]{state: optionalNull} }

// IsZero reports whether the field is left out.
func (o Optional[T]) IsZero() bool { return o.state == 0 }

// IsNull reports whether the field is null.
func (o Optional[T]) IsNull() bool { return o.state == optionalNull }

// Get returns the value; ok is false if the Optional has none.
func (o Optional[T]) Get() (value T, ok bool) { return o.value, o.state == optionalValue }

// Pointer returns the value as a pointer, or nil if the Optional has none.
func (o Optional[T]) Pointer() *T {
	if o.state != optionalValue {
		return nil
	}
	return &o.value
}

// Give sets the value to the zero T and returns a pointer to it. Only the server needs Give and SetNull: it
// has its own decoder.
func (o *Optional[T]) Give() any {
	o.state = optionalValue
	return &o.value
}

// SetNull makes the Optional null.
func (o *Optional[T]) SetNull() { *o = Null[T]() }

func (o Optional[T]) appendJSON(b []byte) ([]byte, error) {
	if o.state != optionalValue {
		return append(b, "null"...), nil
	}
	return AppendJSON(b, o.value)
}

// MarshalJSON writes the value, or null.
func (o Optional[T]) MarshalJSON() ([]byte, error) { return o.appendJSON(nil) }

// UnmarshalJSON reads a value, or null.
func (o *Optional[T]) UnmarshalJSON(raw []byte) error {
	if string(raw) == "null" {
		*o = Null[T]()
		return nil
	}
	*o = Optional[T]{state: optionalValue}
	return json.Unmarshal(raw, &o.value)
}

// A Choice is the name of a preset or, if Object is not nil, a JSON object in place of the preset. The zero
// Choice is null.
type Choice struct {
	Name   string
	Object json.RawMessage
	// failed is the error of Given. A request with such a choice cannot be encoded.
	failed error
}

// Named returns the choice of a preset by its name.
func Named(name string) Choice { return Choice{Name: name} }

// Given returns the choice of a policy, a success rule or a signer as an object: a Policy, a SuccessRule, or
// a map. A call with another value returns an error and sends nothing.
func Given(object any) Choice {
	err := checkRaw(reflect.ValueOf(object), "choice")
	if err != nil {
		return Choice{failed: err}
	}
	raw, err := AppendJSON(nil, object)
	if err == nil && (len(raw) == 0 || raw[0] != '{') {
		err = fmt.Errorf("client: a choice is a name or a JSON object, not %T", object)
	}
	return Choice{Object: raw, failed: err}
}

// IsZero reports whether the Choice has neither a name nor an object.
func (c Choice) IsZero() bool { return c.Name == "" && c.Object == nil && c.failed == nil }

// appendJSON appends the name, the object or null.
func (c Choice) appendJSON(b []byte) ([]byte, error) {
	switch {
	case c.failed != nil:
		return b, c.failed
	case c.Object != nil:
		return append(b, c.Object...), nil
	case c.Name == "":
		return append(b, "null"...), nil
	}
	return AppendString(b, c.Name), nil
}

// MarshalJSON writes the name, the object or null.
func (c Choice) MarshalJSON() ([]byte, error) { return c.appendJSON(nil) }

// UnmarshalJSON reads a name, an object or null.
func (c *Choice) UnmarshalJSON(raw []byte) error {
	*c = Choice{}
	if bytes.HasPrefix(raw, []byte("{")) {
		c.Object = bytes.Clone(raw)
		return nil
	}
	return json.Unmarshal(raw, &c.Name)
}

// Headers are HTTP headers in order. In JSON they are an object.
type Headers []Header

// A Header is one HTTP header.
type Header struct{ Name, Value string }

// Get returns the value of the first header with that name. Case does not matter. Empty: no such header.
func (h Headers) Get(name string) string {
	for _, header := range h {
		if strings.EqualFold(header.Name, name) {
			return header.Value
		}
	}
	return ""
}

// appendJSON appends an object with one member per header, in order.
func (h Headers) appendJSON(b []byte) ([]byte, error) {
	b = append(b, '{')
	for i, header := range h {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(AppendString(b, header.Name), ':')
		b = AppendString(b, header.Value)
	}
	return append(b, '}'), nil
}

// MarshalJSON writes an object with one member per header.
func (h Headers) MarshalJSON() ([]byte, error) { return h.appendJSON(nil) }

// UnmarshalJSON reads the output of MarshalJSON. Null is an empty list.
func (h *Headers) UnmarshalJSON(raw []byte) error {
	*h = nil
	d := json.NewDecoder(bytes.NewReader(raw))
	if open, err := d.Token(); err != nil || open == nil {
		return err
	} else if open != json.Delim('{') {
		return errors.New("client: headers must be a JSON object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var value string
		if err := d.Decode(&value); err != nil {
			return err
		}
		*h = append(*h, Header{name.(string), value})
	}
	return nil
}
