package parse

import (
	"bytes"
	"encoding/json"
)

// A jsonWriter writes an object member by member, in the order of the calls.
type Writer struct {
	Out []byte
	// members is how many there are.
	Members int
}

func NewWriter() *Writer { return &Writer{Out: []byte{'{'}} }

// name begins a member; its value is appended to out.
func (w *Writer) Name(name string) {
	if w.Members++; w.Members > 1 {
		w.Out = append(w.Out, ',')
	}
	w.Out = append(Quote(w.Out, name), ':')
}

// text writes a member that is a text.
func (w *Writer) Text(name, value string) {
	w.Name(name)
	w.Out = Quote(w.Out, value)
}

// end returns the object.
func (w *Writer) End() []byte { return append(w.Out, '}') }

// quoteJSON appends a string as JSON, with nothing escaped that need not be.
func Quote(out []byte, s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string can be encoded, and a buffer written to
	return append(out, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
