package importer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// FuzzImportLines checks that Next returns each line that is not blank once, with its number, and that the
// next one begins at its end. withKey adds a key and changes nothing else.
func FuzzImportLines(f *testing.F) {
	for _, s := range transcript.Inputs(f, "testdata/lines/files.txt") {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		s := &Source{path: "f", r: bufio.NewReader(bytes.NewReader(file)), sum: strings.Repeat("0", 64)}
		found, last := 0, int64(0)
		for {
			line, more, err := s.Next()
			if err != nil {
				t.Fatal(err)
			}
			if !more {
				break
			}
			found++
			own := file[last:line.after]
			if !bytes.Contains(own, line.Text) ||
				bytes.Count(file[:line.after], []byte("\n")) < line.Number-1 {
				t.Fatalf("line %d of %q is %q, which ends at %d", line.Number, file, line.Text, line.after)
			}
			last = line.after
			if line.Problem == nil {
				checkWithKey(t, s, &line)
			}
		}
		want := 0
		for i, text := range bytes.Split(file, []byte("\n")) {
			if i == 0 {
				text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
			}
			if len(bytes.TrimSpace(text)) > 0 {
				want++
			}
		}
		if found != want {
			t.Errorf("%q has %d lines, Next returned %d", file, want, found)
		}
	})
}

// FuzzImportRate checks that a rate is finite and above zero.
func FuzzImportRate(f *testing.F) {
	for text, want := range map[string]float64{"": 0, "500": 500, "500/s": 500, "6000/m": 100, "3600/h": 1} {
		if got, err := remote.ParseRate(text); err != nil || got != want {
			f.Errorf("rate %q is %v, %v", text, got, err)
		}
	}
	for _, s := range []string{
		"500/s", "6000/m", "100/h", "7", "", "0", "-1/s", "NaN", "Inf/s", "1e9", "1e10/s", "0x1p4", "5/",
		"/s", "1e-320/h",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rate, err := remote.ParseRate(text)
		if err == nil && text != "" && !(rate > 0 && rate <= 1e9) {
			t.Errorf("%q is %v per second", text, rate)
		}
	})
}

// FuzzSource checks that read counts every byte, even of lines that are too long.
func FuzzSource(f *testing.F) {
	f.Add([]byte("a\nb"), uint16(16))
	f.Add(bytes.Repeat([]byte("x"), maxLine+2), uint16(4096))
	f.Add(append(bytes.Repeat([]byte("x"), maxLine+1), "\ny\n"...), uint16(17))
	f.Fuzz(func(t *testing.T, file []byte, size uint16) {
		s := &Source{r: bufio.NewReaderSize(bytes.NewReader(file), int(size))}
		var read []byte
		for {
			text, tooLong, err := s.read()
			if len(text) > maxLine || tooLong && len(text) != maxLine {
				t.Fatalf("read returned %d bytes of a line, too long: %t", len(text), tooLong)
			}
			if !tooLong {
				read = append(read, text...)
				if !bytes.HasSuffix(file[:s.offset], text) {
					t.Fatalf("the line that ends at %d differs from the file", s.offset)
				}
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if s.offset != int64(len(file)) || len(read) > len(file) {
			t.Errorf("read %d of %d bytes", s.offset, len(file))
		}
	})
}

// checkWithKey checks a line as it is sent.
func checkWithKey(t *testing.T, s *Source, line *Line) {
	t.Helper()
	sent, err := s.withKey(line)
	if err != nil {
		t.Fatalf("%q gets no key: %v", line.Text, err)
	}
	was, is := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err := json.Unmarshal(line.Text, &was); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(sent, &is); err != nil {
		t.Fatalf("%q is sent as %q: %v", line.Text, sent, err)
	}
	if key := string(is["idempotency_key"]); key == "" || key == "null" || key == `""` {
		if !bytes.Equal(sent, line.Text) { // the server refuses a duplicate key
			t.Errorf("%q is sent as %q, with the key %s", line.Text, sent, key)
		}
	}
	delete(was, "idempotency_key")
	delete(is, "idempotency_key")
	if !reflect.DeepEqual(was, is) {
		t.Errorf("%q is sent as %q: %v", line.Text, sent, slices.Sorted(maps.Keys(is)))
	}
}
