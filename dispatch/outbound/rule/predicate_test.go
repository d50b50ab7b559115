package rule

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// predicatesOf parses valid predicates.
func predicatesOf(t testing.TB, text string) (ps Predicates) {
	t.Helper()
	if wrong := parse.Decode([]byte(text), &ps, new(limits)); wrong != nil {
		t.Fatalf("%s: %v", text, wrong)
	}
	return ps
}

func TestNoPredicateMatches(t *testing.T) {
	t.Parallel()
	if Predicates(nil).Match(NewDocument(200, "", []byte("{}"))) {
		t.Error("an empty list matches")
	}
}

func FuzzPredicate(f *testing.F) {
	f.Add(`[{"pointer":"/a","eq":1}]`, `{"a":1}`, "text/json; charset=gbk", 200)
	f.Add(`[{"xml":"/a/b","matches":"x"},{"all":[{"status":[200]}]}]`, `<a><b>x</b></a>`, "", 404)
	f.Add(`[{"pointer":"/a/0","ge":"1.5"}]`, `{"a":[1.50],"a":2}`, "", 200)
	f.Fuzz(func(t *testing.T, rule, body, contentType string, status int) {
		tree := parse.ReadJSON([]byte(body))
		if (tree != nil) != json.Valid([]byte(body)) {
			t.Fatal("readJSON and encoding/json differ")
		}
		if tree != nil {
			checkTree(t, tree)
		}
		text := canonical(t, "predicates", rule)
		if text == "" {
			return
		}
		ps, again := predicatesOf(t, rule), predicatesOf(t, text)
		d := NewDocument(status, contentType, []byte(body))
		matched := ps.Match(d)
		ps.saw(d, body, []string{"12345678"})
		if again.Match(d) != matched || again.Expected() != ps.Expected() {
			t.Fatalf("%s differs from %s", text, rule)
		}
		if matched && tree != nil && tree.Duplicate && !looksElsewhere(ps) {
			t.Fatalf("%s matches %s, which has a duplicate key", rule, body)
		}
	})
}

// looksElsewhere reports whether any predicate looks at the status or at XML.
func looksElsewhere(ps Predicates) bool {
	return slices.ContainsFunc(ps, func(p Predicate) bool {
		return p.Status != nil || p.XML != nil || p.All != nil && looksElsewhere(p.All)
	})
}

// checkTree compares the tree with the result of encoding/json.
func checkTree(t *testing.T, tree *parse.JSON) {
	if tree.Duplicate {
		return
	}
	var want any
	decoder := json.NewDecoder(bytes.NewReader(tree.Text))
	decoder.UseNumber()
	if err := decoder.Decode(&want); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(fmt.Sprint(want), "\uFFFD") {
		return
	}
	if got := plain(tree, 0); fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) {
		t.Fatalf("%s is parsed to %#v, want %#v", tree.Text, got, want)
	}
}

// plain returns a value as encoding/json does.
func plain(t *parse.JSON, i int32) any {
	switch t.Kind(i) {
	case parse.Object:
		m := make(map[string]any)
		for c := t.First(i); c != 0; c = t.Next(c) {
			m[t.Key(c)] = plain(t, c)
		}
		return m
	case parse.Array:
		list := []any{}
		for c := t.First(i); c != 0; c = t.Next(c) {
			list = append(list, plain(t, c))
		}
		return list
	case parse.String:
		return t.Str(i)
	case parse.Number:
		return json.Number(t.Raw(i))
	case parse.True, parse.False:
		return t.Kind(i) == parse.True
	}
	return nil
}
