package parse

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A JSON is a JSON text that was read once: its values in the order of the text, and how they hang together.
// Answers and rules are read through it because encoding/json hides what matters here: keys that come twice,
// the spelling of keys, the digits of numbers.
//
// It is flat and made without recursion, so that what a receiver nests costs memory in proportion to its
// bytes and no stack.
type JSON struct {
	Text  []byte
	Nodes []jsonNode
	// doubled: some object has a key twice, called twice. Which of the values its sender means nobody can
	// know.
	Doubled bool
	Twice   string
	// copied is the text, for keys of large objects; empty: there is none so far.
	copied string
}

// A jsonNode is one value. The root is node 0; no node is a child of itself, so that 0 stands for "none"
// elsewhere.
type jsonNode struct {
	kind Kind
	// from and to bound the value in the text; keyFrom and keyTo, the key with its quotes where it is a
	// member of an object.
	from, To, keyFrom, keyTo int32
	// parent is where it is in, last its last child, next the one after it.
	parent, last, next int32
}

type Kind byte

const (
	Object Kind = '{'
	Array  Kind = '['
	String Kind = '"'
	True   Kind = 't'
	False  Kind = 'f'
	Null   Kind = 'n'
	Number Kind = '0'
)

const (
	// unquoteSteps is what reading a byte of a text with escapes costs; and escapeSteps, looking whether a
	// key with escapes is the one. A plain byte costs a quarter of a step.
	UnquoteSteps, escapeSteps = 2, 40
)

// KindOf returns the kind of the value that begins a text.
func KindOf(raw []byte) Kind {
	switch k := Kind(raw[0]); k {
	case Object, Array, String, True, False, Null:
		return k
	}
	return Number
}

// maxJSONText bounds what is read, so that offsets fit; answers and rules are far smaller.
const maxJSONText = 1 << 24

// ReadJSON reads a text. It returns nil for what is not JSON, and for what is nested more than 10,000 deep:
// encoding/json judges that.
func ReadJSON(text []byte) *JSON {
	if len(text) > maxJSONText || !json.Valid(text) {
		return nil
	}
	t := &JSON{Text: text, Nodes: make([]jsonNode, 0, 16)}
	inside := int32(0) // the object or array that is open
	var key [2]int32   // the key that waits for its value
	for i := int32(0); i < int32(len(text)); {
		switch c := text[i]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			i++
		case '}', ']':
			i++
			t.Nodes[inside].To = i
			if c == '}' && !t.Doubled {
				t.findDouble(inside)
			}
			inside = t.Nodes[inside].parent
		case '{', '[':
			inside = t.add(Kind(c), inside, i, i+1, key)
			key = [2]int32{}
			i++
		case '"':
			end := stringEnd(text, i)
			if len(t.Nodes) > 0 && t.Nodes[inside].kind == Object && key[1] == 0 {
				key = [2]int32{i, end}
			} else {
				t.add(String, inside, i, end, key)
				key = [2]int32{}
			}
			i = end
		default:
			end := literalEnd(text, i)
			t.add(KindOf(text[i:]), inside, i, end, key)
			key = [2]int32{}
			i = end
		}
	}
	return t
}

// add appends a value within parent and returns its number.
func (t *JSON) add(kind Kind, parent, from, to int32, key [2]int32) int32 {
	n := int32(len(t.Nodes))
	t.Nodes = append(t.Nodes, jsonNode{kind: kind, from: from, To: to, keyFrom: key[0], keyTo: key[1],
		parent: parent})
	if n == 0 {
		return n
	}
	p := &t.Nodes[parent]
	if p.last != 0 {
		t.Nodes[p.last].next = n
	}
	p.last = n
	return n
}

// stringEnd returns where the string ends whose quote is at i.
func stringEnd(text []byte, i int32) int32 {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// literalEnd returns where the number or word ends that begins at i.
func literalEnd(text []byte, i int32) int32 {
	n := bytes.IndexAny(text[i:], ",]} \t\r\n")
	if n < 0 {
		return int32(len(text))
	}
	return i + int32(n)
}

// First returns the first child; 0: there is none. The others follow by next.
func (t *JSON) First(i int32) int32 {
	if t.Nodes[i].last == 0 {
		return 0
	}
	return i + 1
}

// Next returns the child after this one; 0: it is the last.
func (t *JSON) Next(i int32) int32 { return t.Nodes[i].next }

func (t *JSON) Kind(i int32) Kind { return t.Nodes[i].kind }

// Raw returns a value as it stands in the text.
func (t *JSON) Raw(i int32) []byte { return t.Text[t.Nodes[i].from:t.Nodes[i].To] }

// Str returns what a string says.
func (t *JSON) Str(i int32) string { return Unquote(t.Raw(i)) }

// Key returns the key of a member, quotedKey as it stands in the text.
func (t *JSON) Key(i int32) string { return Unquote(t.quotedKey(i)) }

func (t *JSON) quotedKey(i int32) []byte { return t.Text[t.Nodes[i].keyFrom:t.Nodes[i].keyTo] }

// HasKey says whether the member's key is this one, letter by letter, and what it has cost to know. An
// escape is longer than what it stands for, which rules most keys out.
func (t *JSON) HasKey(i int32, key string) (yes bool, steps int) {
	n := &t.Nodes[i]
	quoted := t.Text[n.keyFrom:n.keyTo]
	switch inner := quoted[1 : len(quoted)-1]; {
	case len(inner) < len(key):
		return false, 1
	case len(inner) == len(key):
		return string(inner) == key && bytes.IndexByte(inner, '\\') < 0, 1
	case bytes.IndexByte(inner, '\\') < 0:
		return false, 1
	}
	return Unquote(quoted) == key, escapeSteps + UnquoteSteps*len(quoted)
}

// Unquote returns what a valid JSON string says.
func Unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // it is valid
	return s
}

// fewKeys is up to how many keys are compared with each other; above it a map is cheaper.
const fewKeys = 8

// findDouble looks for a key that an object has twice, also where the two are spelled with different escapes.
func (t *JSON) findDouble(object int32) {
	count, escaped := 0, false
	for c := t.First(object); c != 0; c = t.Next(c) {
		count++
		escaped = escaped || bytes.IndexByte(t.quotedKey(c), '\\') >= 0
	}
	if count > fewKeys || escaped { // each escape is read once in a map
		t.findDoubleOf(object, count)
		return
	}
	for a := t.First(object); a != 0; a = t.Next(a) {
		for b := t.Next(a); b != 0; b = t.Next(b) {
			if bytes.Equal(t.quotedKey(a), t.quotedKey(b)) {
				t.Doubled, t.Twice = true, t.Key(a)
				return
			}
		}
	}
}

// findDoubleOf is findDouble for many keys, and for keys with escapes.
func (t *JSON) findDoubleOf(object int32, count int) {
	if t.copied == "" {
		t.copied = string(t.Text) // once, and not key by key
	}
	seen := make(map[string]struct{}, count)
	for c := t.First(object); c != 0; c = t.Next(c) {
		key := t.copied[t.Nodes[c].keyFrom+1 : t.Nodes[c].keyTo-1]
		if strings.IndexByte(key, '\\') >= 0 {
			key = t.Key(c)
		}
		if _, ok := seen[key]; ok {
			t.Doubled, t.Twice = true, key
			return
		}
		seen[key] = struct{}{}
	}
}
