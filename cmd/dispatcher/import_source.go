package main

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
)

// A source is the lines of an import. A file is read once before, so that its hash and the number of its lines are known.
type source struct {
	path string // "-" for the standard input
	file *os.File
	r    *bufio.Reader
	// sum is the file's hash in hexadecimal. For the standard input, which cannot be read twice, seen takes its place: the hash
	// of everything up to and with the line.
	sum  string
	seen hash.Hash
	// lines is how many there are, zero for the standard input; at and offset are how many were read, and their bytes.
	lines  int
	at     int
	offset int64
}

// An importLine is one line that is not blank.
type importLine struct {
	number int
	text   []byte
	// after is where the next line begins.
	after int64
	// problem is why the line is not even tried.
	problem *apiError
}

// openSource opens what an import reads.
func openSource(c *console, path string) (*source, error) {
	s := &source{path: path}
	if path == "-" {
		s.seen = sha256.New()
		s.r = bufio.NewReaderSize(c.in, 1<<16)
		return s, nil
	}
	var err error
	if s.file, err = os.Open(path); err != nil {
		return nil, cannotRead(path, err)
	}
	sum := sha256.New()
	counter := &newlines{}
	if _, err = io.Copy(io.MultiWriter(sum, counter), s.file); err == nil {
		_, err = s.file.Seek(0, io.SeekStart)
	}
	if err != nil {
		s.close()
		return nil, cannotRead(path, err)
	}
	s.sum, s.lines = hex.EncodeToString(sum.Sum(nil)), counter.n
	if counter.open {
		s.lines++
	}
	s.r = bufio.NewReaderSize(s.file, 1<<16)
	return s, nil
}

// newlines counts lines; open says that the last one has no end.
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

func (s *source) close() {
	if s.file != nil {
		s.file.Close() // it was only read
	}
}

// skip goes to the place that an earlier import reached.
func (s *source) skip(line int, offset int64) error {
	if _, err := s.file.Seek(offset, io.SeekStart); err != nil {
		return cannotRead(s.path, err)
	}
	s.r.Reset(s.file)
	s.at, s.offset = line, offset
	return nil
}

// next returns the next line that is not blank; more is false at the end.
func (s *source) next() (line importLine, more bool, err error) {
	for {
		text, tooLong, err := s.read()
		if err != nil && !errors.Is(err, io.EOF) {
			return line, false, cannotRead(s.path, err)
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
		line = importLine{number: s.at, text: text, after: s.offset}
		switch {
		case tooLong:
			line.problem = &apiError{Status: 413, Code: "too_large", Detail: fmt.Sprintf("the line is longer than %d KiB", maxImportLine>>10)}
		case !json.Valid(text):
			line.problem = &apiError{Status: 400, Code: "bad_json", Detail: "the line is not JSON" + syntaxOf(text)}
		case text[0] != '{':
			line.problem = &apiError{Status: 422, Code: "invalid", Detail: "the line is not a JSON object"}
		}
		return line, true, nil
	}
}

func syntaxOf(text []byte) string {
	var any json.RawMessage
	var syntax *json.SyntaxError
	if errors.As(json.Unmarshal(text, &any), &syntax) {
		return fmt.Sprintf(": %s at byte %d", syntax, syntax.Offset)
	}
	return ""
}

// read returns a line with its end; of one that is too long, the beginning.
func (s *source) read() (text []byte, tooLong bool, err error) {
	for {
		part, err := s.r.ReadSlice('\n')
		s.offset += int64(len(part))
		if s.seen != nil {
			s.seen.Write(part) // never fails
		}
		if len(text)+len(part) <= maxImportLine {
			text = append(text, part...)
		} else if !tooLong {
			tooLong = true
			text = append(text, part[:maxImportLine-len(text)]...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return text, tooLong, err
	}
}

// keyed returns the line with an idempotency key: its own, or one that is made for it and is the same whenever the same source
// is read again. Everything else keeps its bytes.
func (s *source) keyed(line *importLine) ([]byte, error) {
	at, end, given, err := findKey(line.text)
	if err != nil || given {
		return line.text, err
	}
	sum := s.sum
	if s.seen != nil {
		sum = hex.EncodeToString(s.seen.Sum(nil))
	}
	key := strconv.Quote("import-" + sum[:32] + "-" + strconv.Itoa(line.number))
	if end > at { // it stands there with nothing in it
		return bytes.Join([][]byte{line.text[:at], []byte(key), line.text[end:]}, nil), nil
	}
	comma := []byte(",")
	if rest := bytes.TrimLeft(line.text[1:], " \t\r\n"); rest[0] == '}' {
		comma = nil
	}
	return bytes.Join([][]byte{[]byte(`{"idempotency_key":` + key), comma, line.text[1:]}, nil), nil
}

// findKey looks for idempotency_key in a valid object: where its value begins and ends, and whether there is one. A null is none.
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
