package api

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A decoder reads a request into a struct of package client, strictly: the struct's fields are all that the request may
// have. Null is not given, but for an Optional. Accepts do not pass here: see submissionDecoder.
type decoder struct {
	fields
	// choice is what the policy, success and signer of the request choose.
	choice accept.Choice
	// own decode the fields of these names in a way of their own.
	own map[string]func(name string, raw []byte)
}

// into returns what decodes the members of an object into a struct, and says whether it has such a field.
func (d *decoder) into(to any) func(key, raw []byte) bool {
	v := reflect.ValueOf(to).Elem()
	all := client.Fields(v.Type())
	return func(key, raw []byte) bool {
		name := string(key)
		i := slices.IndexFunc(all, func(f client.Field) bool { return f.Name == name })
		switch {
		case i < 0:
			return false
		case d.own[name] != nil:
			d.own[name](name, raw)
		default:
			d.value(name, raw, &all[i], v.FieldByIndex(all[i].Index))
		}
		return true
	}
}

// read decodes a request's body. What is wrong with its fields is in d.invalid. Where optional, no body at all is an
// empty object.
func (d *decoder) read(c *gin.Context, optional bool, to any) error {
	return readObject(c, optional, &d.fields, d.into(to))
}

// read decodes a request's body by a decoder without ways of its own.
func read[T any](c *gin.Context, optional bool) (r T, d decoder, err error) {
	err = d.read(c, optional, &r)
	return r, d, err
}

// readAll is read for a request that the engine does not check field by field: its error names the wrong fields.
func readAll[T any](c *gin.Context, optional bool) (T, error) {
	r, d, err := read[T](c, optional)
	if err == nil {
		err = d.err()
	}
	return r, err
}

// An optional is a *client.Optional.
type optional interface {
	Give() any
	SetNull()
}

// value decodes one field.
func (d *decoder) value(name string, raw []byte, f *client.Field, v reflect.Value) {
	if o, ok := v.Addr().Interface().(optional); ok {
		if isNull(raw) {
			o.SetNull()
			return
		}
		before := len(d.invalid)
		if d.value(name, raw, f, reflect.ValueOf(o.Give()).Elem()); len(d.invalid) > before {
			v.SetZero()
		}
		return
	}
	if isNull(raw) {
		return
	}
	switch to := v.Addr().Interface().(type) {
	case *client.Choice:
		d.choose(name, raw, &d.choice)
	case *client.Headers:
		var headers []store.Header
		d.headers(raw, &headers)
		for _, h := range headers {
			*to = append(*to, client.Header(h))
		}
	case *client.Duration:
		var length *time.Duration
		if d.duration(name, raw, &length); length != nil {
			*to = duration(*length)
		}
	case *time.Time:
		d.moment(name, raw, to)
	case *int:
		d.count(name, raw, to)
	case *int64:
		var n *int64
		if d.integer(name, raw, &n); n != nil {
			*to = *n
		}
	case *bool:
		d.boolean(name, raw, to)
	case **bool:
		*to = new(bool)
		d.boolean(name, raw, *to)
	case **string:
		d.line(name, raw, to)
	case *[]string:
		d.lines(name, raw, f.Most, to)
	case **[]string:
		*to = new([]string)
		d.lines(name, raw, f.Most, *to)
	case *client.QuotaChange:
		d.within(name, raw, d.into(to))
	default:
		d.named(name, raw, f, v)
	}
}

// named decodes a field whose type is a kind of text, or a list of such.
func (d *decoder) named(name string, raw []byte, f *client.Field, v reflect.Value) {
	var (
		text  string
		texts []string
	)
	switch {
	case name == "reason":
		d.reason([]byte(name), raw, &text)
		v.SetString(text)
	case v.Kind() == reflect.String:
		d.decode(name, raw, f.Lines, &text)
		v.SetString(text)
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String:
		d.lines(name, raw, f.Most, &texts)
		v.Set(reflect.MakeSlice(v.Type(), len(texts), len(texts)))
		for i, text := range texts {
			v.Index(i).SetString(text)
		}
	default:
		panic(fmt.Sprintf("the field %s of a request is a %s", name, v.Type()))
	}
}

// moment decodes a time. The zero time means that none is given, so that it becomes the next millisecond.
func (f *fields) moment(name string, raw []byte, to *time.Time) {
	var ms *int64
	if f.instant(name, raw, &ms); ms == nil {
		return
	}
	if *to = time.UnixMilli(*ms); to.IsZero() {
		*to = to.Add(time.Millisecond)
	}
}

// millis returns a time that was decoded in Unix milliseconds, nil where none is given.
func millis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	return new(t.UnixMilli())
}

// length returns a duration that was decoded, nil where none is given.
func length(d client.Duration) *time.Duration {
	if d == "" {
		return nil
	}
	parsed, err := schedule.ParseDuration(string(d))
	if err != nil {
		panic(err) // FormatDuration wrote it
	}
	return &parsed
}

// headersIn returns headers that were decoded, nil where none are given. The mask that headers are shown with may not
// take a credential's place.
func (d *decoder) headersIn(o client.Optional[client.Headers], patch bool) *[]store.Header {
	headers, given := o.Get()
	if !given && !(patch && o.IsNull()) {
		return nil
	}
	out := make([]store.Header, len(headers))
	for i, h := range headers {
		out[i] = store.Header(h)
	}
	d.refuseMask(out, "leave headers out to keep all of them")
	return &out
}

// chosen is what the request chooses, with its profile.
func (d *decoder) chosen(profile string) accept.Choice {
	d.choice.Profile = profile
	return d.choice
}

// A clearable is a field that a PATCH may take away.
type clearable struct {
	name  string
	given interface{ IsNull() bool }
}

// cleared are the names of the fields that are taken away.
func cleared(patch bool, fields ...clearable) (names []string) {
	for _, f := range fields {
		if patch && f.given.IsNull() {
			names = append(names, f.name)
		}
	}
	return names
}

// orEmpty returns the value of a field, nil where it is not given. In a PATCH null is otherwise.
func orEmpty[T any](o client.Optional[T], patch bool, otherwise T) *T {
	if patch && o.IsNull() {
		return &otherwise
	}
	return o.Pointer()
}

// maxReason is the most bytes of a reason that the audit keeps.
const maxReason = 1024

// reason decodes the field "reason", which every change has, and says whether it was that.
func (f *fields) reason(key, value []byte, to *string) bool {
	if string(key) != "reason" {
		return false
	}
	f.text("reason", value, to)
	if len(*to) > maxReason {
		f.add("reason", fmt.Sprintf("has more than %d bytes", maxReason))
	}
	return true
}

// readReason reads a change that has nothing but a reason.
func readReason(c *gin.Context) (string, error) {
	r, err := readAll[client.Change](c, true)
	return r.Reason, err
}
