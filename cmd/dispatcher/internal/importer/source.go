package importer

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strconv"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// Source reads the lines of an import. OpenSource reads a file once in full, to compute its hash and the
// number of its lines.
type Source struct {
	path string // "-" for the standard input
	file *os.File
	r    *bufio.Reader
	// sum is the file's SHA-256 in hexadecimal. The standard input cannot be read twice; its hash is seen, of
	// everything up to the end of the current line.
	sum  string
	seen hash.Hash
	// Lines is the number of lines, zero for the standard input. at and offset are the lines and bytes read
	// so far.
	Lines  int
	at     int
	offset int64
}

// Line is one line that is not blank.
type Line struct {
	Number int
	Text   []byte
	// after is the offset of the next line.
	after int64
	// sent is Text with an idempotency key.
	sent []byte
	// Problem is why the line is not sent, or was refused; nil: neither.
	Problem *client.Problem
}

// OpenSource opens a file, or the standard input if path is "-".
func OpenSource(c *console.Console, path string) (*Source, error) {
	s := &Source{path: path}
	if path == "-" {
		s.seen = sha256.New()
		s.r = bufio.NewReaderSize(c.In, 1<<16)
		return s, nil
	}
	var err error
	s.file, err = os.Open(path)
	if err != nil {
		return nil, console.CannotRead(path, err)
	}
	sum := sha256.New()
	counter := &newlines{}
	_, err = io.Copy(io.MultiWriter(sum, counter), s.file)
	if err == nil {
		_, err = s.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		s.Close()
		return nil, console.CannotRead(path, err)
	}
	s.sum, s.Lines = hex.EncodeToString(sum.Sum(nil)), counter.n
	if counter.open {
		s.Lines++
	}
	s.r = bufio.NewReaderSize(s.file, 1<<16)
	return s, nil
}

// newlines counts lines. open: the last line has no newline.
type newlines struct {
	n    int
	open bool
}

func (w *newlines) Write(p []byte) (int, error) {
	w.n += bytes.Count(p, []byte{'\n'})
	if len(p) > 0 {
		w.open = p[len(p)-1] != '\n'
	}
	return len(p), nil
}

// Close closes the file.
func (s *Source) Close() {
	if s.file != nil {
		s.file.Close() // opened for reading, so no write can fail
	}
}

// skip continues after the line, at the offset, where an earlier import stopped.
func (s *Source) skip(line int, offset int64) error {
	if _, err := s.file.Seek(offset, io.SeekStart); err != nil {
		return console.CannotRead(s.path, err)
	}
	s.r.Reset(s.file)
	s.at, s.offset = line, offset
	return nil
}

// Next returns the next line that is not blank. more is false at the end.
func (s *Source) Next() (line Line, more bool, err error) {
	for {
		text, tooLong, err := s.read()
		if err != nil && !errors.Is(err, io.EOF) {
			return line, false, console.CannotRead(s.path, err)
		}
		if len(text) == 0 && errors.Is(err, io.EOF) {
			return line, false, nil
		}
		s.at++
		if s.at == 1 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		}
		text = bytes.TrimSpace(text)
		if len(text) == 0 && !tooLong {
			continue
		}
		line = Line{Number: s.at, Text: text, after: s.offset}
		switch {
		case tooLong:
			line.Problem = &client.Problem{Status: 413, Code: "too_large",
				Detail: fmt.Sprintf("the line is longer than %d KiB", maxLine>>10)}
		case !json.Valid(text):
			line.Problem = &client.Problem{Status: 400, Code: "bad_json",
				Detail: "the line is not JSON" + console.SyntaxOf(text)}
		case text[0] != '{':
			line.Problem = &client.Problem{Status: 422, Code: "invalid",
				Detail: "the line is not a JSON object"}
		}
		return line, true, nil
	}
}

// read returns a line with its newline. For a line that is too long, it returns the first maxLine bytes.
func (s *Source) read() (text []byte, tooLong bool, err error) {
	for {
		part, err := s.r.ReadSlice('\n')
		s.offset += int64(len(part))
		if s.seen != nil {
			s.seen.Write(part) // never fails
		}
		if len(text)+len(part) <= maxLine {
			text = append(text, part...)
		} else if !tooLong {
			tooLong = true
			text = append(text, part[:maxLine-len(text)]...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return text, tooLong, err
	}
}

// withKey returns the line with an idempotency key: its own, or one that is the same each time the same
// source is read. All other bytes stay unchanged.
func (s *Source) withKey(line *Line) ([]byte, error) {
	at, end, given, err := findKey(line.Text)
	if err != nil || given {
		return line.Text, err
	}
	sum := s.sum
	if s.seen != nil {
		sum = hex.EncodeToString(s.seen.Sum(nil))
	}
	key := strconv.Quote("import-" + sum[:32] + "-" + strconv.Itoa(line.Number))
	if end > at { // the member exists and is null
		return bytes.Join([][]byte{line.Text[:at], []byte(key), line.Text[end:]}, nil), nil
	}
	comma := []byte(",")
	if rest := bytes.TrimLeft(line.Text[1:], " \t\r\n"); rest[0] == '}' {
		comma = nil
	}
	return bytes.Join([][]byte{[]byte(`{"idempotency_key":` + key), comma, line.Text[1:]}, nil), nil
}

// findKey finds the member idempotency_key of a valid object. given reports a value other than null; at and
// end are the position of a null, equal if the member is missing.
func findKey(object []byte) (at, end int, given bool, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		return 0, 0, false, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return 0, 0, false, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return 0, 0, false, err
		}
		if name != "idempotency_key" {
			continue
		}
		if string(value) != "null" {
			return 0, 0, true, nil
		}
		end = int(d.InputOffset())
		at = end - len(value)
	}
	return at, end, false, nil
}

// Batch is a batch of lines that can be sent, and the progress of reading for it.
type Batch struct {
	Lines []*Line
	Read  int
	Last  *Line // the last line read; nil: the source had ended
	// More: the source has not ended.
	More bool
}

// Batch reads the next lines until it has most lines that can be sent, or about MaxBatch bytes of them. It
// passes the other lines to refuse.
func (s *Source) Batch(most int, refuse func(*Line)) (b Batch, err error) {
	for size := 0; len(b.Lines) < most && size < MaxBatch; {
		line, found, err := s.Next()
		b.More = found
		if err != nil || !found {
			return b, err
		}
		b.Last = &line
		b.Read++
		if line.Problem != nil {
			refuse(&line)
			continue
		}
		b.Lines = append(b.Lines, &line)
		size += len(line.Text)
	}
	return b, nil
}
