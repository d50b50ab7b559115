// Package transcript compares what code answers with what a file says that it answers. It is for tests only.
//
// Each line of a file is an input. The answer stands behind it, every line of it after a tab. Empty lines and lines that
// begin with # are for the reader. In an input «…» is what Go writes in quotes, such as «\r\n», and «…*100» a hundred
// times that. The flag -update of a test rewrites the answers.
package transcript

import (
	"flag"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the answers in the transcripts")

// Run asks for the answer to each input in turn, and fails for each that the file has another answer to. An answer must
// not vary from run to run. The empty one takes no line.
func Run(t *testing.T, file string, answer func(input string) string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	var written strings.Builder
	for i := 0; i < len(lines); {
		at, input := i, lines[i]
		written.WriteString(input + "\n")
		var want strings.Builder
		for i++; i < len(lines) && strings.HasPrefix(lines[i], "\t"); i++ {
			want.WriteString(lines[i] + "\n")
		}
		got := ""
		if input != "" && input[0] != '#' {
			if got = answer(Expand(t, input)); got != "" {
				got = "\t" + strings.ReplaceAll(got, "\n", "\n\t") + "\n"
			}
		}
		written.WriteString(got)
		if !*update && got != want.String() {
			t.Errorf("%s:%d: %.300s\n got %s\nwant %s", file, at+1, input, got, &want)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(written.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

var quoted = regexp.MustCompile(`«(.*?)(?:\*(\d+))?»`)

// Expand replaces what stands between « and ».
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
