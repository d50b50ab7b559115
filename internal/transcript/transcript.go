// Package transcript compares the results of code with a file of expected results. It is for tests only.
//
// A transcript is a text of inputs, each followed by its result, and of comments for the reader. The caller
// defines the form of inputs and results. Most results are indented. If a result has changed, the test fails
// and shows the difference. With the test flag -update it writes the new results. So a change of behaviour is
// a change of a file that a reviewer reads.
//
// Results must be the same in every run. So callers must replace times, ids and ports with names.
package transcript

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Update is the flag -update: write the results into the transcripts.
var Update = flag.Bool("update", false, "write the results into the transcripts")

// Files runs File for each file that matches the pattern. Each one is a parallel subtest with the name of the
// file without its extension.
func Files(t *testing.T, pattern string, play func(t *testing.T, text string) string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts %s: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), func(t *testing.T) {
			t.Parallel()
			File(t, file, play)
		})
	}
}

// File compares a transcript with the text that play returns: the transcript with the current results.
func File(t *testing.T, file string, play func(t *testing.T, text string) string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := play(t, string(text))
	if *Update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := difference(string(text), got); diff != "" {
		t.Errorf("%s (-file +now; -update writes it):\n%s", file, diff)
	}
}

// Block is File for one block of a page, between the lines <!-- name --> and <!-- /name -->.
func Block(t *testing.T, file, name, block string) {
	t.Helper()
	File(t, file, func(t *testing.T, text string) string {
		begin, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->\n"
		before, rest, found := strings.Cut(text, begin)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			t.Fatalf("%s has no block between %q and %q", file, begin, end)
		}
		return before + begin + block + end + after
	})
}

// difference compares two texts by lines. It returns an empty text if they are equal.
func difference(want, got string) string {
	return cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n"))
}

// Cases calls play for each part of a text that begins with "== NAME", in order, each in a subtest with that
// name. It returns the text with the results.
func Cases(t *testing.T, text string, play func(t *testing.T, name, body string) string) string {
	t.Helper()
	head, cases, _ := strings.Cut("\n"+text, "\n== ")
	var written strings.Builder
	written.WriteString(head)
	for part := range strings.SplitSeq(cases, "\n== ") {
		name, body, _ := strings.Cut(part, "\n")
		body = strings.TrimRight(body, "\n") + "\n"
		t.Run(name, func(t *testing.T) { body = play(t, name, body) })
		written.WriteString("\n== " + name + "\n" + body)
	}
	return written.String()[1:]
}

// Lines calls answer for each input line of a text. It returns the text with each result after its input,
// indented by two spaces. It drops old results. Empty lines and lines that begin with # are not inputs.
func Lines(text string, answer func(line string) string) string {
	var written strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue
		}
		written.WriteString(line + "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		if got := strings.TrimSuffix(answer(line), "\n"); got != "" {
			written.WriteString("  " + strings.ReplaceAll(got, "\n", "\n  ") + "\n")
		}
	}
	return written.String()
}

// Run compares a file of input lines (see Lines). Inputs are expanded (see Expand) before answer gets them.
func Run(t *testing.T, file string, answer func(input string) string) {
	t.Helper()
	File(t, file, func(t *testing.T, text string) string {
		return Lines(text, func(line string) string { return answer(Expand(t, line)) })
	})
}

// Inputs returns the expanded inputs of a file of lines, as seeds for fuzz tests.
func Inputs(t testing.TB, file string) (inputs []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	Lines(string(text), func(line string) string {
		inputs = append(inputs, Expand(t, line))
		return ""
	})
	return inputs
}

var quoted = regexp.MustCompile(`«(.*?)(?:\*(\d+))?»`)

// Expand replaces text between « and » with its value as a Go string, such as «\r\n». «…*100» repeats the
// value 100 times.
func Expand(t testing.TB, input string) string {
	t.Helper()
	return quoted.ReplaceAllStringFunc(input, func(part string) string {
		m := quoted.FindStringSubmatch(part)
		text, err := strconv.Unquote(`"` + strings.ReplaceAll(m[1], `"`, `\"`) + `"`)
		if err != nil {
			t.Fatalf("%s: %v", part, err)
		}
		if m[2] == "" {
			return text
		}
		times, _ := strconv.Atoi(m[2]) // the pattern permits only digits
		return strings.Repeat(text, times)
	})
}
