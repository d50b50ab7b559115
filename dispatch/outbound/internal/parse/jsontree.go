package parse

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A JSON is a parsed JSON text: its values in the order of the text, as a tree. It keeps what encoding/json
// hides and answers and rules need: duplicate keys, the spelling of keys and the digits of numbers.
//
// The tree is flat and built without recursion. So deep nesting costs memory in proportion to the text and no
// stack.
type JSON struct {
	Text  []byte
	Nodes []jsonNode
	// Duplicate means that some object has a key twice; DuplicateKey is that key. The sender's intended value
	// is then unknown.
	Duplicate    bool
	DuplicateKey string
	// copied is the text as a string, for the keys of large objects. It is empty until the first use.
	copied string
}

// A jsonNode is one value. The root is node 0. No node has the root as a child or sibling, so 0 means "none"
// elsewhere.
type jsonNode struct {
	kind Kind
	// from and To bound the value in the text. keyFrom and keyTo bound the key of an object's member, with
	// its quotes.
	from, To, keyFrom, keyTo int32
	// parent is the enclosing value, last the last child and next the next sibling.
	parent, last, next int32
}

// A Kind is the type of a JSON value.
type Kind byte

// The kinds.
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
	// UnquoteSteps is the cost in steps of a byte of a string with escapes. escapeSteps is the cost of the
	// comparison with a key that has escapes. A plain byte costs a quarter of a step.
	UnquoteSteps, escapeSteps = 2, 40
)

// KindOf returns the kind of the value at the start of a valid JSON text.
func KindOf(raw []byte) Kind {
	switch k := Kind(raw[0]); k {
	case Object, Array, String, True, False, Null:
		return k
	}
	return Number
}

// maxJSONText bounds the text so that offsets fit into int32. Answers and rules are far smaller.
const maxJSONText = 1 << 24

// ReadJSON parses a text. It returns nil if the text is not JSON or nested more than 10,000 deep, which
// encoding/json decides.
func ReadJSON(text []byte) *JSON {
	if len(text) > maxJSONText || !json.Valid(text) {
		return nil
	}
	t := &JSON{Text: text, Nodes: make([]jsonNode, 0, 16)}
	inside := int32(0) // the innermost open object or array
	var key [2]int32   // the bounds of the key whose value follows
	for i := int32(0); i < int32(len(text)); {
		switch c := text[i]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			i++
		case '}', ']':
			i++
			t.Nodes[inside].To = i
			if c == '}' && !t.Duplicate {
				t.findDuplicate(inside)
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

// add appends a value to parent and returns its number.
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

// stringEnd returns the end of the string whose opening quote is at i.
func stringEnd(text []byte, i int32) int32 {
	for i++; text[i] != '"'; i++ {
		if text[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// literalEnd returns the end of the number or word that starts at i.
func literalEnd(text []byte, i int32) int32 {
	n := bytes.IndexAny(text[i:], ",]} \t\r\n")
	if n < 0 {
		return int32(len(text))
	}
	return i + int32(n)
}

// First returns the first child, or 0 if there is none. Next returns the others.
func (t *JSON) First(i int32) int32 {
	if t.Nodes[i].last == 0 {
		return 0
	}
	return i + 1
}

// Next returns the next sibling, or 0 if there is none.
func (t *JSON) Next(i int32) int32 { return t.Nodes[i].next }

// Kind returns the kind of a value.
func (t *JSON) Kind(i int32) Kind { return t.Nodes[i].kind }

// Raw returns the JSON text of a value.
func (t *JSON) Raw(i int32) []byte { return t.Text[t.Nodes[i].from:t.Nodes[i].To] }

// Str returns the content of a string.
func (t *JSON) Str(i int32) string { return Unquote(t.Raw(i)) }

// Key returns the key of an object's member.
func (t *JSON) Key(i int32) string { return Unquote(t.quotedKey(i)) }

// quotedKey returns the JSON text of a member's key.
func (t *JSON) quotedKey(i int32) []byte { return t.Text[t.Nodes[i].keyFrom:t.Nodes[i].keyTo] }

// HasKey reports whether the member's key is equal to key, and the cost of the comparison in steps. An escape
// is longer than its character, so most keys differ in length and need no decoding.
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

// Unquote returns the content of a valid JSON string.
func Unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // cannot fail: the string is valid
	return s
}

// fewKeys is the maximum of keys that are compared in pairs. For more keys a map is cheaper.
const fewKeys = 8

// findDuplicate looks for a key that an object has twice, even if the two are spelled with different escapes.
func (t *JSON) findDuplicate(object int32) {
	count, escaped := 0, false
	for c := t.First(object); c != 0; c = t.Next(c) {
		count++
		escaped = escaped || bytes.IndexByte(t.quotedKey(c), '\\') >= 0
	}
	if count > fewKeys || escaped { // with a map each escape is decoded once
		t.findDuplicateByMap(object, count)
		return
	}
	for a := t.First(object); a != 0; a = t.Next(a) {
		for b := t.Next(a); b != 0; b = t.Next(b) {
			if bytes.Equal(t.quotedKey(a), t.quotedKey(b)) {
				t.Duplicate, t.DuplicateKey = true, t.Key(a)
				return
			}
		}
	}
}

// findDuplicateByMap is findDuplicate for many keys, and for keys with escapes.
func (t *JSON) findDuplicateByMap(object int32, count int) {
	if t.copied == "" {
		t.copied = string(t.Text) // one copy instead of one per key
	}
	seen := make(map[string]struct{}, count)
	for c := t.First(object); c != 0; c = t.Next(c) {
		key := t.copied[t.Nodes[c].keyFrom+1 : t.Nodes[c].keyTo-1]
		if strings.IndexByte(key, '\\') >= 0 {
			key = t.Key(c)
		}
		if _, ok := seen[key]; ok {
			t.Duplicate, t.DuplicateKey = true, key
			return
		}
		seen[key] = struct{}{}
	}
}
