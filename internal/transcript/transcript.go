// Package transcript compares what code answers with what a file says that it answers. It is for tests only.
//
// A transcript is a text of inputs, each with its answer below it, and of lines for the reader. What inputs
// and answers look like is the caller's to say; most have answers indented. Where an answer has changed, the
// test fails and shows the difference; with the flag -update of the test it is written instead. A change of
// behaviour is then a change of a file that a reviewer reads.
//
// Answers must not vary from run to run: times, ids and ports are to be named.
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

// Update says that answers are to be written: the flag -update was given.
var Update = flag.Bool("update", false, "write the answers into the transcripts")

// Files plays each file that matches the pattern, in parallel, in a test of its name without its extension.
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

// File plays one: play returns the text with the answers that there are now.
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

// difference compares two texts by lines; empty: they are the same.
func difference(want, got string) string {
	return cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n"))
}

// Cases plays the parts of a text that begin with "== NAME", one after the other, each in a test of that
// name.
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

// Lines asks for the answer to each line of a text, and puts it below, indented by two spaces. Answers that
// are there, lines that are empty and lines that begin with # are no inputs.
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

// Run plays a file of lines, whose inputs are expanded before they are answered.
func Run(t *testing.T, file string, answer func(input string) string) {
	t.Helper()
	File(t, file, func(t *testing.T, text string) string {
		return Lines(text, func(line string) string { return answer(Expand(t, line)) })
	})
}

// Inputs returns the inputs of a file of lines, expanded: fuzz tests begin with them.
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

// Expand replaces what stands between « and » by what Go reads in quotes, such as «\r\n»; and «…*100» by a
// hundred times that.
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
		times, _ := strconv.Atoi(m[2]) // they are digits
		return strings.Repeat(text, times)
	})
}
