package transcript

import (
	"strings"
	"testing"
)

// TestLines checks that each result follows its input, old results are dropped, and comments stay.
func TestLines(t *testing.T) {
	t.Parallel()
	const text = "# A comment.\n\nfirst\n  old\n  older\nsecond\nthird\n"
	got := Lines(text, func(line string) string {
		return map[string]string{"first": "one\ntwo\n", "third": "three"}[line]
	})
	const want = "# A comment.\n\nfirst\n  one\n  two\nsecond\nthird\n  three\n"
	if got != want || Lines(want, func(line string) string {
		return map[string]string{"first": "one\ntwo\n", "third": "three"}[line]
	}) != want {
		t.Errorf("got\n%s", got)
	}
}

// TestCases checks that cases run in order, each under its name, and that the text before the first stays.
func TestCases(t *testing.T) {
	const text = "# Head.\n\n== One\na\n\n== Two\nb\nc\n"
	var names []string
	got := Cases(t, text, func(t *testing.T, name, body string) string {
		if !strings.HasSuffix(t.Name(), "/"+name) {
			t.Errorf("case %s runs in test %s", name, t.Name())
		}
		names = append(names, name+":"+body)
		return body
	})
	if got != text || strings.Join(names, "") != "One:a\nTwo:b\nc\n" {
		t.Errorf("ran %q, wrote\n%s", names, got)
	}
}

func TestDifference(t *testing.T) {
	t.Parallel()
	if diff := difference("a\nb\nc", "a\nb\nc"); diff != "" {
		t.Errorf("equal texts differ: %s", diff)
	}
	diff := difference("a\nb\nc", "a\nx\nc")
	if !strings.Contains(diff, "b") || !strings.Contains(diff, "x") {
		t.Errorf("the difference has not both lines: %s", diff)
	}
}

func TestExpand(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain": "plain", "a«\\r\\n»b": "a\r\nb", "«ab*3»": "ababab", "«\"»": `"`,
		"«\\x00*2» «c»": "\x00\x00 c",
	} {
		if got := Expand(t, text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
