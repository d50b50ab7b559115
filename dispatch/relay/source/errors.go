package source

import (
	"errors"
	"strings"
)

// ErrBroken: the connection cannot be used any more. Close it and connect again, with a pause.
var ErrBroken = errors.New("connection lost")

// A CheckError is returned by Connect if a check found errors.
type CheckError struct{ Findings []Finding }

// Error joins the texts and cures of the findings of level error.
func (e *CheckError) Error() string {
	var texts []string
	for _, f := range e.Findings {
		if f.Level == LevelError {
			texts = append(texts, f.Text+": "+f.Cure)
		}
	}
	return strings.Join(texts, "; ")
}

// An opError is the error of a call of a Conn. Its text has the operation, the kind, and what the database
// said. It never has a DSN.
type opError struct {
	op   string
	kind error // ErrBroken or nil
	err  error
}

func (e *opError) Error() string {
	if e.kind == nil {
		return e.op + ": " + e.err.Error()
	}
	return e.op + ": " + e.kind.Error() + ": " + e.err.Error()
}

func (e *opError) Unwrap() []error {
	if e.kind == nil {
		return []error{e.err}
	}
	return []error{e.kind, e.err}
}
