package api_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// names stand in a transcript for what is another in every run.
type names struct {
	name, value map[string]string
	last        map[string]int
}

func newNames() names {
	return names{name: map[string]string{}, value: map[string]string{}, last: map[string]int{}}
}

// put gives a value the name of its kind and a number.
func (n names) put(kind, value string, number int) {
	name := fmt.Sprintf("%s_%d", kind, number)
	n.name[value], n.value[name], n.last[kind] = name, value, number
}

// of is the name of a value.
func (n names) of(kind, value string) string {
	if n.name[value] == "" {
		n.put(kind, value, n.last[kind]+1)
	}
	return n.name[value]
}

var (
	namedForm  = regexp.MustCompile(`\b(cb|ep|ev|key|rd|sc|au|id|dk|whsec|whsk|whpk|cursor)([_:])(\d+)\b`)
	idForm     = regexp.MustCompile(`\b(?:(cb|ep|ev|key|rd|sc)_)?([0-7][0-9A-HJKMNP-TV-Z]{25})\b`)
	tokenForm  = regexp.MustCompile(`\b(dk|whsec|whsk|whpk)_[A-Za-z0-9+/=_-]{24,}`)
	cursorForm = regexp.MustCompile(`(next_cursor":"|cursor=)([A-Za-z0-9_-]{24,})`)
	momentForm = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT[\d:.]+Z|"age_ms": ?\d+|"hash": ?"[0-9a-f]{64}"|"hint": ?"[^"]*"`)
)

// real is text with the values of its names.
func (n names) real(text string) string {
	return namedForm.ReplaceAllStringFunc(text, func(s string) string {
		part := namedForm.FindStringSubmatch(s)
		value, known := n.value[part[1]+"_"+part[3]]
		switch {
		case !known:
			return s
		case part[2] == "_" && len(value) == 26 && part[1] != "au" && part[1] != "id":
			return part[1] + "_" + value
		}
		return value
	})
}

// hide is text with names for the values that are others in every run, and without moments where those are, too.
func (n names) hide(text string, moments bool) string {
	text = cursorForm.ReplaceAllStringFunc(text, func(s string) string {
		part := cursorForm.FindStringSubmatch(s)
		return part[1] + n.of("cursor", part[2])
	})
	text = tokenForm.ReplaceAllStringFunc(text, func(s string) string {
		kind, _, _ := strings.Cut(s, "_")
		return n.of(kind, s)
	})
	text = idForm.ReplaceAllStringFunc(text, func(s string) string {
		part := idForm.FindStringSubmatch(s)
		if part[1] != "" {
			return n.of(part[1], part[2])
		}
		return strings.Replace(n.of("id", part[2]), "_", ":", 1)
	})
	if moments {
		text = momentForm.ReplaceAllString(text, "(varies)")
	}
	return text
}

// callText is a call with what it was given.
func callText(call string, args ...any) string {
	words := []string{call}
	for _, arg := range args {
		if a, ok := arg.(store.Actor); ok {
			words = append(words, actorText(a))
			continue
		}
		var b strings.Builder
		if v := reflect.ValueOf(arg); v.Kind() != reflect.String {
			write(&b, v)
		} else if b.WriteString(printable(v.String())); v.Len() == 0 {
			b.WriteString(`""`)
		}
		words = append(words, b.String())
	}
	return strings.Join(words, " ")
}

func actorText(a store.Actor) string {
	text := "by " + a.Name
	if a.Address != "192.0.2.1" {
		text += fmt.Sprintf(" from %q", a.Address)
	}
	if a.Reason != "" {
		text += fmt.Sprintf(" because %q", a.Reason)
	}
	return text
}

// write writes a value without the members that are zero. & is before what a pointer points to.
func write(b *strings.Builder, v reflect.Value) {
	if !v.IsValid() {
		b.WriteString("nil")
		return
	}
	if v.CanInterface() {
		switch x := v.Interface().(type) {
		case time.Duration, netip.Addr, *time.Location:
			fmt.Fprint(b, x)
			return
		case []byte:
			switch {
			case len(x) > 200:
				fmt.Fprintf(b, "(%d bytes)", len(x))
			case printable(string(x)) == string(x):
				fmt.Fprintf(b, "`%s`", x)
			default:
				fmt.Fprintf(b, "%q", x)
			}
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			b.WriteString("nil")
			return
		}
		b.WriteByte('&')
		write(b, v.Elem())
	case reflect.Struct:
		b.WriteByte('{')
		before := b.Len()
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				continue
			}
			if b.Len() > before {
				b.WriteByte(' ')
			}
			b.WriteString(v.Type().Field(i).Name + ":")
			if v.Type().Field(i).Name == "Fingerprint" {
				fmt.Fprintf(b, "(%d bytes)", v.Field(i).Len())
				continue
			}
			write(b, v.Field(i))
		}
		b.WriteByte('}')
	case reflect.Slice, reflect.Array:
		b.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				b.WriteByte(' ')
			}
			write(b, v.Index(i))
		}
		b.WriteByte(']')
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		b.WriteByte('{')
		for i, key := range keys {
			if i > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(b, "%s:", key.String())
			write(b, v.MapIndex(key))
		}
		b.WriteByte('}')
	case reflect.String:
		fmt.Fprintf(b, "%q", v.String())
	default:
		fmt.Fprint(b, v)
	}
}
