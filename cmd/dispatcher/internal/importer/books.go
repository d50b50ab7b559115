package importer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/machine"
)

// Books are what an import keeps beside its file: how far it came, and what was refused. Both are on disk
// before the next batch is sent, the refusals first.
type books struct {
	source       *Source
	progressPath string // empty: none is kept
	errorsPath   string
	errors       io.Writer
	file         *os.File // of errors; nil: none was written yet
	done         waymark
}

// A waymark is the content of FILE.progress.
type waymark struct {
	SHA256 string `json:"sha256"`
	// Line is the last line that was done, Offset where the next one begins, Lines how many of them were not
	// blank.
	Line   int   `json:"line"`
	Offset int64 `json:"offset"`
	Lines  int   `json:"lines"`
	// ErrorBytes is how long the file of errors was then.
	ErrorBytes int64 `json:"error_bytes"`
	Finished   bool  `json:"finished"`
}

// openBooks begins new books, or goes on with those of an earlier import.
func openBooks(c *console.Console, s *Source, resume bool) (*books, error) {
	b := &books{source: s}
	if s.path == "-" {
		b.errors = c.Err
		return b, nil
	}
	b.progressPath, b.errorsPath = s.path+".progress", s.path+".errors.ndjson"
	before, err := b.read()
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case resume && err != nil:
		return nil, console.Wrong("--resume: there is no %s; start without it", b.progressPath)
	case resume && before.SHA256 != s.sum:
		return nil, console.Wrong("--resume: %s is not the file that %s is about: it was changed since. "+
			"Start without it, "+
			"or put the lines that are new into a file of their own", s.path, b.progressPath)
	case !resume && err == nil && before.SHA256 == s.sum && before.Line > 0 && !before.Finished:
		fmt.Fprintf(c.Err, "dispatcher: an earlier import came to line %d; --resume would skip those lines "+
			"(nothing is made twice either way)\n", before.Line)
	}
	if resume {
		b.done = before
		if err := s.skip(before.Line, before.Offset); err != nil {
			return nil, err
		}
		// What was refused after the last batch that is in the books will be refused again.
		if err := os.Truncate(b.errorsPath, before.ErrorBytes); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("go on with %s: %w", b.errorsPath, err)
		}
		return b, nil
	}
	if err := os.Remove(b.errorsPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("begin %s anew: %w", b.errorsPath, err)
	}
	b.done = waymark{SHA256: s.sum}
	return b, b.write()
}

func (b *books) read() (p waymark, err error) {
	content, err := os.ReadFile(b.progressPath)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(content, &p); err != nil {
		return p, fmt.Errorf("%s cannot be read (%w); remove it to start anew", b.progressPath, err)
	}
	return p, nil
}

// A refusal is one line of FILE.errors.ndjson.
type refusal struct {
	Line   int    `json:"line"`
	Status int    `json:"status"`
	Code   string `json:"code,omitempty"`
	Detail string `json:"detail"`
	Errors any    `json:"errors,omitempty"`
	// At the end follows "input": the line, byte for byte; the beginning of one that is not JSON as text.
}

// refuse writes down why a line was not accepted.
func (b *books) refuse(line *Line) error {
	p := line.Problem
	r := refusal{Line: line.Number, Status: p.Status, Code: p.Code, Detail: cmp.Or(p.Detail, p.Title)}
	if len(p.Errors) > 0 {
		r.Errors = p.Errors
	}
	input := line.Text
	var err error
	if !json.Valid(input) {
		input, err = json.Marshal(string(input[:min(len(input), 1024)]))
		if err != nil {
			return fmt.Errorf("write down line %d: %w", line.Number, err)
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write down line %d: %w", line.Number, err)
	}
	text = slices.Concat(text[:len(text)-1], []byte(`,"input":`), input, []byte("}\n"))
	if b.errors == nil {
		b.file, err = os.OpenFile(b.errorsPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return fmt.Errorf("write down what was refused: %w", err)
		}
		b.errors = b.file
	}
	n, err := b.errors.Write(text)
	b.done.ErrorBytes += int64(n)
	if err != nil {
		return fmt.Errorf("write down what was refused: %w", err)
	}
	return nil
}

// reached notes that everything up to the line is done.
func (b *books) reached(last *Line, lines int) error {
	b.done.Line, b.done.Offset = last.Number, last.after
	b.done.Lines += lines
	return b.write()
}

// finished notes that there are no more lines.
func (b *books) finished() error {
	b.done.Finished = true
	return b.write()
}

// write puts the refusals and then the progress on disk, complete before it has its name.
func (b *books) write() error {
	if b.progressPath == "" {
		return nil
	}
	if b.file != nil {
		if err := b.file.Sync(); err != nil {
			return fmt.Errorf("write down what was refused: %w", err)
		}
	}
	if err := b.mark(); err != nil {
		return fmt.Errorf("write down the progress: %w", err)
	}
	return nil
}

// mark puts the file of the progress in the place of the old one.
func (b *books) mark() error {
	content, err := json.Marshal(b.done)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(b.progressPath+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(content, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), b.progressPath); err != nil {
		return err
	}
	return machine.SyncDir(filepath.Dir(b.progressPath))
}

func (b *books) close() error {
	if b.file == nil {
		return nil
	}
	return b.file.Close()
}
