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

// checkpoint stores the progress of an import and the refused lines in two files next to the source. Both are
// on disk before the next batch is sent. The refusals are written first, so that the progress never covers a
// refusal that a crash lost.
type checkpoint struct {
	source       *Source
	progressPath string // empty: no progress is stored
	errorsPath   string
	errors       io.Writer
	file         *os.File // of errors; nil: no refusal yet
	done         progress
}

// progress is the content of FILE.progress.
type progress struct {
	SHA256 string `json:"sha256"`
	// Line is the last finished line, Offset the start of the next one, and Lines the number of finished
	// lines that were not blank.
	Line   int   `json:"line"`
	Offset int64 `json:"offset"`
	Lines  int   `json:"lines"`
	// ErrorBytes is the size of the errors file at that line.
	ErrorBytes int64 `json:"error_bytes"`
	Finished   bool  `json:"finished"`
}

// openCheckpoint starts a new checkpoint, or continues that of an earlier import.
func openCheckpoint(c *console.Console, s *Source, resume bool) (*checkpoint, error) {
	cp := &checkpoint{source: s}
	if s.path == "-" {
		cp.errors = c.Err
		return cp, nil
	}
	cp.progressPath, cp.errorsPath = s.path+".progress", s.path+".errors.ndjson"
	before, err := cp.read()
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case resume && err != nil:
		return nil, console.Wrong("--resume: %s does not exist; run without --resume", cp.progressPath)
	case resume && before.SHA256 != s.sum:
		return nil, console.Wrong("--resume: %s was changed since %s was written; "+
			"run without --resume, or put the new lines into a new file", s.path, cp.progressPath)
	case !resume && err == nil && before.SHA256 == s.sum && before.Line > 0 && !before.Finished:
		fmt.Fprintf(c.Err, "dispatcher: an earlier import stopped after line %d; --resume skips these lines "+
			"(without it, no callback is created twice either)\n", before.Line)
	}
	if resume {
		cp.done = before
		if err := s.skip(before.Line, before.Offset); err != nil {
			return nil, err
		}
		// Refusals after the checkpoint will occur again, so drop them.
		if err := os.Truncate(cp.errorsPath, before.ErrorBytes); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("truncate %s: %w", cp.errorsPath, err)
		}
		return cp, nil
	}
	if err := os.Remove(cp.errorsPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove the old %s: %w", cp.errorsPath, err)
	}
	cp.done = progress{SHA256: s.sum}
	return cp, cp.save()
}

// read returns the progress of an earlier import, or fs.ErrNotExist.
func (cp *checkpoint) read() (p progress, err error) {
	content, err := os.ReadFile(cp.progressPath)
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(content, &p); err != nil {
		return p, fmt.Errorf("parse %s: %w; delete it to start from the first line", cp.progressPath, err)
	}
	return p, nil
}

// refusal is one line of FILE.errors.ndjson.
type refusal struct {
	Line   int    `json:"line"`
	Status int    `json:"status"`
	Code   string `json:"code,omitempty"`
	Detail string `json:"detail"`
	Errors any    `json:"errors,omitempty"`
	// The last member is "input": the unchanged line, or the start of it as a text if it is not JSON.
}

// refuse appends a refused line to the errors file.
func (cp *checkpoint) refuse(line *Line) error {
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
			return fmt.Errorf("record the refusal of line %d: %w", line.Number, err)
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record the refusal of line %d: %w", line.Number, err)
	}
	text = slices.Concat(text[:len(text)-1], []byte(`,"input":`), input, []byte("}\n"))
	if cp.errors == nil {
		cp.file, err = os.OpenFile(cp.errorsPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return fmt.Errorf("write the errors file: %w", err)
		}
		cp.errors = cp.file
	}
	n, err := cp.errors.Write(text)
	cp.done.ErrorBytes += int64(n)
	if err != nil {
		return fmt.Errorf("write the errors file: %w", err)
	}
	return nil
}

// advance stores that all lines up to last are finished.
func (cp *checkpoint) advance(last *Line, lines int) error {
	cp.done.Line, cp.done.Offset = last.Number, last.after
	cp.done.Lines += lines
	return cp.save()
}

// finish stores that the source has ended.
func (cp *checkpoint) finish() error {
	cp.done.Finished = true
	return cp.save()
}

// save syncs the errors file, then replaces the progress file.
func (cp *checkpoint) save() error {
	if cp.progressPath == "" {
		return nil
	}
	if cp.file != nil {
		if err := cp.file.Sync(); err != nil {
			return fmt.Errorf("write the errors file: %w", err)
		}
	}
	if err := cp.replaceProgress(); err != nil {
		return fmt.Errorf("write the progress file: %w", err)
	}
	return nil
}

// replaceProgress writes a complete new file and renames it, so that a crash leaves the old or the new one.
func (cp *checkpoint) replaceProgress() error {
	content, err := json.Marshal(cp.done)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(cp.progressPath+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(content, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), cp.progressPath); err != nil {
		return err
	}
	return machine.SyncDir(filepath.Dir(cp.progressPath))
}

func (cp *checkpoint) close() error {
	if cp.file == nil {
		return nil
	}
	return cp.file.Close()
}
