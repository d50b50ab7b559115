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

// NonEmpty returns the trimmed texts that are not blank, so that --tiers= means no tiers.
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

// Widest is the maximum number of characters of an outside text in one column.
const Widest = 60

// Brief formats a duration, rounded to seconds, or to milliseconds if it is below a second.
func Brief(d time.Duration) string {
	if d.Abs() < time.Second {
		return schedule.FormatDuration(d.Round(time.Millisecond))
	}
	return schedule.FormatDuration(d.Round(time.Second))
}

// ClockTime formats a time in the local zone with its offset, to the millisecond. The zero time is "".
func ClockTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05.000 -07:00")
}

// Short makes an outside text safe for a terminal and shortens it to n characters.
func Short[T ~string](s T, n int) string {
	r := []rune(Printable(s))
	if len(r) <= n {
		return string(r)
	}
	return string(r[:n-1]) + "…"
}

// Printable makes an outside text safe for a terminal: it escapes control characters, which could overwrite
// earlier output.
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

// MakeSafe applies Printable to all texts of the value that a pointer points to. It skips byte slices, such
// as JSON.
func MakeSafe(value any) { makeSafe(reflect.ValueOf(value)) }

// makeSafe is MakeSafe by reflection.
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

// unprintable reports C0, DEL and C1 controls and the characters that change the writing direction.
func unprintable(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// PrintJSON prints a response as indented JSON, otherwise unchanged.
func (c *Console) PrintJSON(answer []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, answer, "", "  "); err != nil {
		return fmt.Errorf("the response is not JSON: %w", err)
	}
	out.WriteByte('\n')
	_, err := out.WriteTo(c.Out)
	return err
}

// PrintValue prints a value as indented JSON.
func (c *Console) PrintValue(value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return c.PrintJSON(text)
}

// SizeText formats a number of bytes.
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
