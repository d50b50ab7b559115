package api

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// A decoder reads a request into a struct of package client, strictly: the struct's fields are all that the
// request may have. Null is not given, but for an Optional. Accepts do not pass here: see submissionDecoder.
type decoder struct {
	fields
	// choice is what the policy, success and signer of the request choose.
	choice accept.Choice
	// custom decode the fields of these names in a way of their custom.
	custom map[string]func(name string, raw []byte)
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
		case d.custom[name] != nil:
			d.custom[name](name, raw)
		default:
			d.value(name, raw, &all[i], v.FieldByIndex(all[i].Index))
		}
		return true
	}
}

// read decodes a request's body. What is wrong with its fields is in d.invalid. Where optional, no body at
// all is an empty object.
func (d *decoder) read(c *gin.Context, optional bool, to any) error {
	return readObject(c, optional, &d.fields, d.into(to))
}

// read decodes a request's body by a decoder without ways of its own.
func read[T any](c *gin.Context, optional bool) (r T, d decoder, err error) {
	err = d.read(c, optional, &r)
	return r, d, err
}

// readAll is read for a request that the engine does not check field by field: its error names the wrong
// fields.
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
		d.value(name, raw, f, reflect.ValueOf(o.Give()).Elem())
		if len(d.invalid) > before {
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
		set(&d.fields, name, raw, to, func(raw []byte) (client.Duration, string) {
			length, wrong := decodeDuration(raw)
			return duration(length), wrong
		})
	case *time.Time:
		d.moment(name, raw, to)
	case *int:
		set(&d.fields, name, raw, to, decodeCount)
	case *int64:
		set(&d.fields, name, raw, to, decodeInteger)
	case *bool:
		d.boolean(name, raw, to)
	case **bool:
		setPointer(&d.fields, name, raw, to, decodeBoolean)
	case **string:
		d.line(name, raw, to)
	case *[]string:
		d.lines(name, raw, f.Most, to)
	case **[]string:
		*to = new([]string)
		d.lines(name, raw, f.Most, *to)
	case *client.QuotaChange:
		d.nested(name, raw, d.into(to))
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
		set(&d.fields, name, raw, &text, func(raw []byte) (string, string) {
			return decodeText(raw, f.Lines)
		})
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
	set(f, name, raw, to, func(raw []byte) (time.Time, string) {
		ms, wrong := decodeInstant(raw)
		at := time.UnixMilli(ms)
		if at.IsZero() {
			at = at.Add(time.Millisecond)
		}
		return at, wrong
	})
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

// headersOrNil returns headers that were decoded, nil where none are given. The mask that headers are shown with
// may not take a credential's place.
func (d *decoder) headersOrNil(o client.Optional[client.Headers], patch bool) *[]store.Header {
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

// withProfile is what the request chooses, with its profile.
func (d *decoder) withProfile(profile string) accept.Choice {
	d.choice.Profile = profile
	return d.choice
}

// A clearable is a field that a PATCH may take away.
type clearable struct {
	name  string
	given interface{ IsNull() bool }
}

// nullFields are the names of the fields that are taken away.
func nullFields(patch bool, fields ...clearable) (names []string) {
	for _, f := range fields {
		if patch && f.given.IsNull() {
			names = append(names, f.name)
		}
	}
	return names
}

// orDefault returns the value of a field, nil where it is not given. In a PATCH null is otherwise.
func orDefault[T any](o client.Optional[T], patch bool, otherwise T) *T {
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

// This file reads how something is to be sent: the same fields stand in callbacks, events, endpoints,
// profiles and projects.

// choose decodes a policy, a success rule, a signer or a profile.
func (f *fields) choose(name string, raw []byte, to *accept.Choice) {
	switch name {
	case "policy":
		f.policy(raw, to)
	case "success":
		f.success(raw, to)
	case "signer":
		f.signer(raw, to)
	case "profile":
		f.text("profile", raw, &to.Profile)
	}
}

// nameOrObject takes the name of what may be given whole, too: then object reads it. what says which name, where it
// is neither.
func (f *fields) nameOrObject(name, what string, raw []byte, to *string, object func()) {
	switch raw[0] {
	case 'n':
	case '"':
		f.text(name, raw, to)
	case '{':
		object()
	default:
		f.add(name, "must be a "+what+"'s name or an object")
	}
}

// success takes a rule's name, or the bytes of one given whole, which the engine reads.
func (f *fields) success(raw []byte, to *accept.Choice) {
	f.nameOrObject("success", "success rule", raw, &to.Success, func() { to.SuccessRule = raw })
}

// signer takes a signer's name, or the text of an object with its options. An object within a text is no
// name.
func (f *fields) signer(raw []byte, to *accept.Choice) {
	if s, wrong := decodeLine(raw); wrong == "" && strings.HasPrefix(s, "{") {
		f.add("signer", "must be a signer's name or an object")
		return
	}
	f.nameOrObject("signer", "signer", raw, &to.Signer, func() { to.Signer = string(raw) })
}

// policy takes a name or a policy given whole.
func (f *fields) policy(raw []byte, to *accept.Choice) {
	f.nameOrObject("policy", "policy", raw, &to.PolicyName, func() {
		before, p := len(f.invalid), emptyPolicy()
		f.object("policy", "policy.", raw, func(key, value []byte) bool {
			return f.policyMember("policy.", key, value, &p)
		})
		f.requireTiers("policy.", &p)
		if len(f.invalid) == before {
			to.Policy, to.PolicyGiven = p, true
		}
	})
}

// emptyPolicy is what a policy given whole starts from.
func emptyPolicy() store.Policy {
	p := accept.DefaultPolicy()
	p.Tiers = nil
	return p
}

// policyMember decodes one field of a policy that is given whole, and says whether there is such a field. Its
// name has the prefix.
func (f *fields) policyMember(prefix string, key, value []byte, p *store.Policy) bool {
	name := prefix + string(key)
	wait := func(to *time.Duration) { set(f, name, value, to, decodeDuration) }
	switch string(key) {
	case "tiers":
		p.Tiers = arrayOf(f, name, value, maxTiers, decodeDuration)
	case "repeat_last":
		f.boolean(name, value, &p.RepeatLast)
	case "deadline":
		wait(&p.Deadline)
	case "timeout":
		wait(&p.Timeout)
	case "jitter":
		set(f, name, value, &p.Jitter, decodeNumber)
	case "retry_after_cap":
		wait(&p.RetryAfterCap)
	case "overload_floor":
		wait(&p.OverloadFloor)
	case "stop_on":
		if given := arrayOf(f, name, value, maxStatuses, decodeCount); given != nil {
			p.StopOn = given
		}
	default:
		return false
	}
	return true
}

// requireTiers says what a policy given whole lacks.
func (f *fields) requireTiers(prefix string, p *store.Policy) {
	if p.Tiers == nil {
		f.add(prefix+"tiers", "is needed; [] is a single attempt")
	}
}

// refuseMask names the headers that have the mask for a value; otherwise is what the caller may do instead.
func (f *fields) refuseMask(headers []store.Header, otherwise string) {
	for _, h := range headers {
		if query.Masked(h) {
			f.add("headers."+h.Name,
				`is "***", which stands for a value that is not shown: give the value itself, or `+otherwise)
		}
	}
}
