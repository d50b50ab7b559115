package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Duration is a Go duration in text that may also have days, such as "15s", "1h30m" or "2d". Empty is
// none, which is
// null in JSON.
type Duration string

// DurationOf returns d as the API reads it.
func DurationOf(d time.Duration) Duration { return Duration(d.String()) }

// Parse returns the length of the duration; empty is zero.
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

// An Optional is a field of a change that can be left out, be null, or have a value. The zero Optional is
// left out.
type Optional[T any] struct {
	value T
	state byte
}

const (
	optionalNull  = 'n'
	optionalValue = 'v'
)

// Set returns an Optional that has a value.
func Set[T any](value T) Optional[T] { return Optional[T]{value, optionalValue} }

// Null returns an Optional that is null: it takes away what the field stands for.
func Null[T any]() Optional[T] { return Optional[T]{state: optionalNull} }

// IsZero says whether the field is left out.
func (o Optional[T]) IsZero() bool { return o.state == 0 }

// IsNull says whether the field is null.
func (o Optional[T]) IsNull() bool { return o.state == optionalNull }

// Get returns the value, and whether there is one.
func (o Optional[T]) Get() (value T, ok bool) { return o.value, o.state == optionalValue }

// Pointer returns the value as a pointer, nil where there is none.
func (o Optional[T]) Pointer() *T {
	if o.state != optionalValue {
		return nil
	}
	return &o.value
}

// Give makes it an Optional that has a value, and returns a pointer to that. Give and SetNull are for a
// server, which decodes requests by itself.
func (o *Optional[T]) Give() any {
	o.state = optionalValue
	return &o.value
}

// SetNull makes it null.
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

// A Choice is a preset by its name or, where Object is not nil, given whole as a JSON object. The zero
// Choice is null.
type Choice struct {
	Name   string
	Object json.RawMessage
}

// Named returns the choice of a preset.
func Named(name string) Choice { return Choice{Name: name} }

// Given returns the choice of a policy, a success rule or a signer that is given whole.
func Given(object any) (Choice, error) {
	raw, err := AppendJSON(nil, object)
	if err == nil && (len(raw) == 0 || raw[0] != '{') {
		err = errors.New("client: a choice is a name or a JSON object")
	}
	return Choice{Object: raw}, err
}

// IsZero says whether nothing is chosen.
func (c Choice) IsZero() bool { return c.Name == "" && c.Object == nil }

func (c Choice) appendJSON(b []byte) ([]byte, error) {
	switch {
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

// Headers are HTTP headers in their order; in JSON they are an object.
type Headers []Header

// A Header is one HTTP header.
type Header struct{ Name, Value string }

// Get returns the value of the first header of that name, whose case does not matter; empty: there is none.
func (h Headers) Get(name string) string {
	for _, header := range h {
		if strings.EqualFold(header.Name, name) {
			return header.Value
		}
	}
	return ""
}

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

// MarshalJSON writes an object with a member for each header.
func (h Headers) MarshalJSON() ([]byte, error) { return h.appendJSON(nil) }

// UnmarshalJSON reads what MarshalJSON writes, and null as none.
func (h *Headers) UnmarshalJSON(raw []byte) error {
	*h = nil
	d := json.NewDecoder(bytes.NewReader(raw))
	if open, err := d.Token(); err != nil || open == nil {
		return err
	} else if open != json.Delim('{') {
		return errors.New("client: headers are no JSON object")
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
