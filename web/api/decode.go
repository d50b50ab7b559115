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

// A decoder reads a request into a struct of package client. The request must not have fields that the struct
// lacks. Null means not given, except for an Optional. Submissions do not use it; see submissionDecoder.
type decoder struct {
	fields
	// choice has the policy, success, signer and profile of the request.
	choice accept.Choice
	// custom has the fields that are decoded in another way, by name.
	custom map[string]func(name string, raw []byte)
}

// into returns a member function that decodes into the struct to. It returns false for an unknown field.
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

// read decodes a request's body. Invalid fields are in d.invalid. If optional is true, an empty body is an
// empty object.
func (d *decoder) read(c *gin.Context, optional bool, to any) error {
	return readObject(c, optional, &d.fields, d.into(to))
}

// read decodes a request's body with a decoder that has no custom fields.
func read[T any](c *gin.Context, optional bool) (r T, d decoder, err error) {
	err = d.read(c, optional, &r)
	return r, d, err
}

// readAll is read for requests that the engine does not check: its error names the invalid fields.
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

// value decodes one field by its Go type. An Optional with an invalid value is left out. An int is a count
// from 1, an int64 any integer. A Choice goes to d.choice, the form in which the engine takes it; in the
// struct only an Optional records whether it was given.
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
	case *client.ReconcileSettings:
		d.nested(name, raw, d.into(to))
	case *[]client.RefTopic:
		d.refTopics(name, raw, f.Most, to)
	default:
		d.named(name, raw, f, v)
	}
}

// named decodes a field whose type is a named string type, or a slice of such a type.
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

// moment decodes a time. The zero time means not given, so a request for the zero time gets the next
// millisecond.
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

// millis returns a decoded time in Unix milliseconds, or nil if it was not given.
func millis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	return new(t.UnixMilli())
}

// length returns a decoded duration, or nil if it was not given.
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

// headersOrNil returns the decoded headers, or nil if they were not given. It rejects the mask as the value
// of a credential: the caller would overwrite the credential with what a response showed.
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

// withProfile returns the choice of the request, including its profile.
func (d *decoder) withProfile(profile string) accept.Choice {
	d.choice.Profile = profile
	return d.choice
}

// A clearable is a field that null removes in a PATCH.
type clearable struct {
	name  string
	given interface{ IsNull() bool }
}

// nullFields returns the names of the fields that a PATCH removes with null.
func nullFields(patch bool, fields ...clearable) (names []string) {
	for _, f := range fields {
		if patch && f.given.IsNull() {
			names = append(names, f.name)
		}
	}
	return names
}

// orDefault returns a pointer to the value of a field, or nil if it was not given. In a PATCH, null is
// otherwise.
func orDefault[T any](o client.Optional[T], patch bool, otherwise T) *T {
	if patch && o.IsNull() {
		return &otherwise
	}
	return o.Pointer()
}

// maxReason is the maximum length of a reason in bytes. The audit log stores reasons.
const maxReason = 1024

// reason decodes the field "reason", which every change has. It returns false for another key.
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

// readReason reads a change that has only a reason.
func readReason(c *gin.Context) (string, error) {
	r, err := readAll[client.Change](c, true)
	return r.Reason, err
}

// The rest of this file reads how a callback is sent. Callbacks, events, endpoints, profiles and projects
// have these fields.

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

// nameOrObject decodes the name of a preset, or calls object for a JSON object. what names the kind of preset
// in the error message.
func (f *fields) nameOrObject(name, what string, raw []byte, to *string, object func()) {
	switch raw[0] {
	case 'n':
	case '"':
		f.text(name, raw, to)
	case '{':
		object()
	default:
		f.add(name, "must be the name of a "+what+", or an object")
	}
}

// success keeps the name of a rule, or the bytes of a rule object, which the engine reads.
func (f *fields) success(raw []byte, to *accept.Choice) {
	f.nameOrObject("success", "success rule", raw, &to.Success, func() { to.SuccessRule = raw })
}

// signer keeps the name of a signer, or the text of an object with its options. A string that begins with {
// is rejected, because a later reader would take it for an object.
func (f *fields) signer(raw []byte, to *accept.Choice) {
	if s, wrong := decodeLine(raw); wrong == "" && strings.HasPrefix(s, "{") {
		f.add("signer", "must be the name of a signer, or an object")
		return
	}
	f.nameOrObject("signer", "signer", raw, &to.Signer, func() { to.Signer = string(raw) })
}

// policy decodes the name of a policy, or a policy object.
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

// emptyPolicy is the default policy without tiers. A policy object sets the rest.
func emptyPolicy() store.Policy {
	p := accept.DefaultPolicy()
	p.Tiers = nil
	return p
}

// policyMember decodes one field of a policy object. It returns false for an unknown field. Error messages
// name the field with the prefix.
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

// requireTiers rejects a policy object without tiers.
func (f *fields) requireTiers(prefix string, p *store.Policy) {
	if p.Tiers == nil {
		f.add(prefix+"tiers", "is required; [] means a single attempt")
	}
}

// refuseMask rejects headers whose value is the mask. otherwise is the alternative in the error message.
func (f *fields) refuseMask(headers []store.Header, otherwise string) {
	for _, h := range headers {
		if query.Masked(h) {
			f.add("headers."+h.Name, "is masked; send the real value, or "+otherwise)
		}
	}
}
