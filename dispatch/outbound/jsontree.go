package outbound

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A jsonTree is a JSON text that was read once: its values in the order of the text, and how they hang together. Answers and rules are
// read through it because encoding/json hides what matters here: keys that come twice, the spelling of keys, the digits of numbers.
//
// It is flat and made without recursion, so that what a receiver nests costs memory in proportion to its bytes and no stack.
type jsonTree struct {
	text  []byte
	nodes []jsonNode
	// doubled: some object has a key twice, called twice. Which of the values its sender means nobody can know.
	doubled bool
	twice   string
	// copied is the text, for keys of large objects; empty: there is none so far.
	copied string
}

// A jsonNode is one value. The root is node 0; no node is a child of itself, so that 0 stands for "none" elsewhere.
type jsonNode struct {
	kind jsonKind
	// from and to bound the value in the text; keyFrom and keyTo, the key with its quotes where it is a member of an object.
	from, to, keyFrom, keyTo int32
	// parent is where it is in, last its last child, next the one after it.
	parent, last, next int32
}

type jsonKind byte

const (
	jsonObject jsonKind = '{'
	jsonArray  jsonKind = '['
	jsonString jsonKind = '"'
	jsonTrue   jsonKind = 't'
	jsonFalse  jsonKind = 'f'
	jsonNull   jsonKind = 'n'
	jsonNumber jsonKind = '0'
)

// maxJSONText bounds what is read, so that offsets fit; answers and rules are far smaller.
const maxJSONText = 1 << 24

// readJSON reads a text. It returns nil for what is not JSON, and for what is nested more than 10,000 deep: encoding/json judges that.
func readJSON(text []byte) *jsonTree {
	if len(text) > maxJSONText || !json.Valid(text) {
		return nil
	}
	t := &jsonTree{text: text, nodes: make([]jsonNode, 0, 16)}
	inside := int32(0) // the object or array that is open
	var key [2]int32   // the key that waits for its value
	for i := int32(0); i < int32(len(text)); {
		switch c := text[i]; c {
		case ' ', '\t', '\r', '\n', ',', ':':
			i++
		case '}', ']':
			i++
			t.nodes[inside].to = i
			if c == '}' && !t.doubled {
				t.findDouble(inside)
			}
			inside = t.nodes[inside].parent
		case '{', '[':
			inside = t.add(jsonKind(c), inside, i, i+1, key)
			key = [2]int32{}
			i++
		case '"':
			end := stringEnd(text, i)
			if len(t.nodes) > 0 && t.nodes[inside].kind == jsonObject && key[1] == 0 {
				key = [2]int32{i, end}
			} else {
				t.add(jsonString, inside, i, end, key)
				key = [2]int32{}
			}
			i = end
		default:
			end := literalEnd(text, i)
			kind := jsonNumber
			if c == 't' || c == 'f' || c == 'n' {
				kind = jsonKind(c)
			}
			t.add(kind, inside, i, end, key)
			key = [2]int32{}
			i = end
		}
	}
	return t
}

// add appends a value within parent and returns its number.
func (t *jsonTree) add(kind jsonKind, parent, from, to int32, key [2]int32) int32 {
	n := int32(len(t.nodes))
	t.nodes = append(t.nodes, jsonNode{kind: kind, from: from, to: to, keyFrom: key[0], keyTo: key[1], parent: parent})
	if n == 0 {
		return n
	}
	p := &t.nodes[parent]
	if p.last != 0 {
		t.nodes[p.last].next = n
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

// first returns the first child; 0: there is none. The others follow by next.
func (t *jsonTree) first(i int32) int32 {
	if t.nodes[i].last == 0 {
		return 0
	}
	return i + 1
}

// next returns the child after this one; 0: it is the last.
func (t *jsonTree) next(i int32) int32 { return t.nodes[i].next }

func (t *jsonTree) kind(i int32) jsonKind { return t.nodes[i].kind }

// raw returns a value as it stands in the text.
func (t *jsonTree) raw(i int32) []byte { return t.text[t.nodes[i].from:t.nodes[i].to] }

// str returns what a string says.
func (t *jsonTree) str(i int32) string { return unquote(t.raw(i)) }

// key returns the key of a member, quotedKey as it stands in the text.
func (t *jsonTree) key(i int32) string { return unquote(t.quotedKey(i)) }

func (t *jsonTree) quotedKey(i int32) []byte { return t.text[t.nodes[i].keyFrom:t.nodes[i].keyTo] }

// hasKey says whether the member's key is this one, letter by letter, and what it has cost to know. An
// escape is longer than what it stands for, which rules most keys out.
func (t *jsonTree) hasKey(i int32, key string) (yes bool, steps int) {
	n := &t.nodes[i]
	quoted := t.text[n.keyFrom:n.keyTo]
	switch inner := quoted[1 : len(quoted)-1]; {
	case len(inner) < len(key):
		return false, 1
	case len(inner) == len(key):
		return string(inner) == key && bytes.IndexByte(inner, '\\') < 0, 1
	case bytes.IndexByte(inner, '\\') < 0:
		return false, 1
	}
	return unquote(quoted) == key, escapeSteps + unquoteSteps*len(quoted)
}

// unquote returns what a valid JSON string says.
func unquote(quoted []byte) string {
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
func (t *jsonTree) findDouble(object int32) {
	count, escaped := 0, false
	for c := t.first(object); c != 0; c = t.next(c) {
		count++
		escaped = escaped || bytes.IndexByte(t.quotedKey(c), '\\') >= 0
	}
	if count > fewKeys || escaped { // each escape is read once in a map
		t.findDoubleOf(object, count)
		return
	}
	for a := t.first(object); a != 0; a = t.next(a) {
		for b := t.next(a); b != 0; b = t.next(b) {
			if bytes.Equal(t.quotedKey(a), t.quotedKey(b)) {
				t.doubled, t.twice = true, t.key(a)
				return
			}
		}
	}
}

// findDoubleOf is findDouble for many keys, and for keys with escapes.
func (t *jsonTree) findDoubleOf(object int32, count int) {
	if t.copied == "" {
		t.copied = string(t.text) // once, and not key by key
	}
	seen := make(map[string]struct{}, count)
	for c := t.first(object); c != 0; c = t.next(c) {
		key := t.copied[t.nodes[c].keyFrom+1 : t.nodes[c].keyTo-1]
		if strings.IndexByte(key, '\\') >= 0 {
			key = t.key(c)
		}
		if _, ok := seen[key]; ok {
			t.doubled, t.twice = true, key
			return
		}
		seen[key] = struct{}{}
	}
}
