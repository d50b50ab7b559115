package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// NonEmpty returns the texts that are not blank, so that --tiers= means no tier at all.
func NonEmpty(texts []string) []string {
	out := []string{}
	for _, t := range texts {
		t = strings.TrimSpace(t)
		if t != "" {
			out = append(out, t)
		}
	}
	return out
}

// Widest is how many characters of a text from elsewhere stand in one column.
const Widest = 60

// Brief prints a duration to the second, or to the millisecond below one.
func Brief(d time.Duration) string {
	if d.Abs() < time.Second {
		return schedule.FormatDuration(d.Round(time.Millisecond))
	}
	return schedule.FormatDuration(d.Round(time.Second))
}

// ClockTime prints a time for people, and the zero time as nothing: in their zone, with date and offset, to
// the millisecond.
func ClockTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05.000 -07:00")
}

// Short makes a text from elsewhere safe and at most n characters long.
func Short[T ~string](s T, n int) string {
	r := []rune(Printable(s))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n-1]) + "…"
}

// Printable makes a text from elsewhere safe for a terminal: control characters, which could rewrite what
// stands there already, are shown by their numbers.
func Printable[T ~string](text T) string {
	s := string(text)
	if !strings.ContainsFunc(s, unprintable) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unprintable(r) {
			fmt.Fprintf(&b, "\\x%02x", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// MakeSafe makes each text of a value that is pointed to Printable, but for JSON and other bytes.
func MakeSafe(value any) { makeSafe(reflect.ValueOf(value)) }

func makeSafe(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(Printable(v.String()))
	case reflect.Pointer:
		makeSafe(v.Elem())
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				makeSafe(field)
			}
		}
	case reflect.Slice:
		for i := 0; i < v.Len() && v.Type().Elem().Kind() != reflect.Uint8; i++ {
			makeSafe(v.Index(i))
		}
	case reflect.Map:
		if texts, ok := v.Interface().(map[string]string); ok {
			for name, text := range texts {
				delete(texts, name)
				texts[Printable(name)] = Printable(text)
			}
		}
	}
}

// unprintable says of C0, DEL and C1 controls, and of characters that turn the direction of writing, that
// they must not reach a terminal.
func unprintable(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// PrintJSON shows an answer for machines: indented, otherwise as the server wrote it.
func (c *Console) PrintJSON(answer []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, answer, "", "  "); err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	out.WriteByte('\n')
	_, err := out.WriteTo(c.Out)
	return err
}

// PrintValue shows a value for machines, as indented JSON.
func (c *Console) PrintValue(value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return c.PrintJSON(text)
}

// SizeText writes a number of bytes for people.
func SizeText(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	size, suffix := float64(n)/unit, 0
	for size >= unit && suffix < 3 {
		size, suffix = size/unit, suffix+1
	}
	return fmt.Sprintf("%.1f %s", size, []string{"KiB", "MiB", "GiB", "TiB"}[suffix])
}
