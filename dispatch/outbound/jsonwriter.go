package outbound

import (
	"bytes"
	"encoding/json"
)

// A jsonWriter writes an object member by member, in the order of the calls.
type jsonWriter struct {
	out []byte
	// members is how many there are.
	members int
}

func newJSONWriter() *jsonWriter { return &jsonWriter{out: []byte{'{'}} }

// name begins a member; its value is appended to out.
func (w *jsonWriter) name(name string) {
	if w.members++; w.members > 1 {
		w.out = append(w.out, ',')
	}
	w.out = append(quoteJSON(w.out, name), ':')
}

// text writes a member that is a text.
func (w *jsonWriter) text(name, value string) {
	w.name(name)
	w.out = quoteJSON(w.out, value)
}

// end returns the object.
func (w *jsonWriter) end() []byte { return append(w.out, '}') }

// quoteJSON appends a string as JSON, with nothing escaped that need not be.
func quoteJSON(out []byte, s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string can be encoded, and a buffer written to
	return append(out, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...)
}
