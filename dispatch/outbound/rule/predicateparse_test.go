package rule

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestParsePredicatesNamesWhatIsWrong has the limits of cases 71 and 72 of the security list, too.
func TestParsePredicatesNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	nested := func(n int) string {
		return strings.Repeat(`{"all":[`, n-1) + `{"status":[200]}` + strings.Repeat(`]}`, n-1)
	}
	for want, texts := range map[string][]string{
		"the whole": {
			`[]`, `[`, "[\"\xff\"]", "[" + strings.Repeat(`{"status":[200]},`, 64) + `{"status":[200]}]`,
		},
		"[0]": {`[1]`, `[{}]`, `[{"eq":1}]`, `[{"pointer":"/a"}]`},
		"[0].pointer": {
			`[{"pointer":"a","eq":1}]`, `[{"pointer":"/a~2","eq":1}]`,
			`[{"pointer":"/` + strings.Repeat("a", 512) + `","eq":1}]`,
		},
		"[0].xml": {
			`[{"xml":"a","eq":1}]`, `[{"xml":"/a//b","eq":1}]`, `[{"xml":"/a/@b","eq":1}]`,
			`[{"pointer":"/a","xml":"/a","eq":1}]`,
		},
		"[0].ne": {`[{"pointer":"/a","eq":1,"ne":2}]`},
		"[0].eq": {
			`[{"pointer":"/a","eq":1,"eq":1}]`, `[{"pointer":"/a","eq":{}}]`,
			`[{"pointer":"/a","eq":"\u0000"}]`, `[{"pointer":"/a","eq":1e99999999999}]`,
			`[{"pointer":"/a","eq":"` + strings.Repeat("x", 513) + `"}]`, `[{"status":[200],"eq":1}]`,
		},
		"[0].like": {`[{"pointer":"/a","eq":1,"like":1}]`},
		"[0].in": {
			`[{"pointer":"/a","in":[]}]`, `[{"pointer":"/a","in":[` + strings.Repeat("1,", 100) + `1]}]`,
		},
		"[0].in[1]":  {`[{"pointer":"/a","in":["x",{}]}]`},
		"[0].exists": {`[{"pointer":"/a","exists":1}]`, `[{"all":[{"status":[200]}],"exists":true}]`},
		"[0].gt":     {`[{"pointer":"/a","gt":"x"}]`},
		"[0].le":     {`[{"pointer":"/a","le":null}]`},
		"[0].matches": {
			`[{"pointer":"/a","matches":""}]`, `[{"pointer":"/a","matches":"("}]`,
			`[{"pointer":"/a","matches":"x{1001}"}]`, `[{"pointer":"/a","matches":"(a{100}){100}"}]`,
			`[{"pointer":"/a","matches":"(a{900}b{900}c{900}d{900}e{900})"}]`,
			`[{"pointer":"/a","matches":"` + strings.Repeat("x", 513) + `"}]`,
		},
		"[0].status": {`[{"status":[]}]`},
		"[0].status[0] [0].status[1] [0].status[2] [0].status[3] [0].status[4] [0].status[5]": {
			`[{"status":[99,"600","300-200","2xx",200.5,"200-"]}]`,
		},
		"[0].status[0] [0].status[1] [0].status[2]": {`[{"status":["-1","+20",null]}]`},
		"[0].all":       {`[{"all":[]}]`},
		"[1].all[0].eq": {`[{"status":[200]},{"all":[{"pointer":"/a","eq":[]}]}]`},
		"[0]" + strings.Repeat(".all[0]", 7) + ".all": {"[" + nested(9) + "]"},
	} {
		for _, text := range texts {
			_, wrong := readPredicates(text)
			if named := fieldsOf(t, wrong); named != want {
				t.Errorf("%s:\n named %q\nwant %q (%v)", parse.Cut(text, 80), named, want, wrong)
			}
		}
	}
	predicatesOf(t, "["+nested(8)+"]")
	predicatesOf(t, `[{"pointer":"/a","matches":"^x{1000}"}]`)
	predicatesOf(t, "["+strings.Repeat(`{"status":[200]},`, 63)+`{"status":[200]}]`)
	if _, wrong := readPredicates(strings.Repeat(" ", parse.MaxSettingBytes+1)); len(wrong) != 1 {
		t.Errorf("too long a text: %v", wrong)
	}
}

func TestPredicatesHaveOneSpelling(t *testing.T) {
	t.Parallel()
	const text = ` [ { "eq" : 1.50 , "pointer" : "\/a\u0062" } , {"status":["404",500,"200-299","7-7"]}]`
	ps := predicatesOf(t, strings.Replace(text, `,"7-7"`, `,"201-201"`, 1))
	want := `[{"pointer":"/ab","eq":1.50},{"status":[404,500,"200-299",201]}]`
	if got := textOf(t, ps); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	all := `[{"all":[{"pointer":"","in":["<&>",1,true,false,null,""]},{"xml":"/a/b","not_in":["x"]},{"pointer":"/a","exists":false},` +
		`{"pointer":"/a","gt":1},{"pointer":"/a","ge":"1.50"},{"pointer":"/a","lt":-1},{"pointer":"/a","le":1e3},{"pointer":"/a","ne":"é"},` +
		`{"pointer":"/a","matches":"^[a-z]+\\.$"}]}]`
	if got := textOf(t, predicatesOf(t, all)); got != all {
		t.Errorf("got %s\nwant %s", got, all)
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
		ps, wrong := readPredicates(rule)
		if wrong != nil {
			return
		}
		d := NewDocument(status, contentType, []byte(body))
		matched := ps.Match(d)
		ps.saw(d, body, []string{"12345678"})
		again, wrong := readPredicates(textOf(t, ps))
		if wrong != nil || textOf(t, again) != textOf(t, ps) || again.Match(d) != matched || again.Expected() != ps.Expected() {
			t.Fatalf("%s is not what %s is: %v", textOf(t, ps), rule, wrong)
		}
		if matched && tree != nil && tree.Doubled && !looksElsewhere(ps) {
			t.Fatalf("%s matches %s, which has a key twice", rule, body)
		}
	})
}

// looksElsewhere says whether any of the predicates looks at something else than JSON.
func looksElsewhere(ps Predicates) bool {
	return slices.ContainsFunc(ps, func(p Predicate) bool {
		return p.Status != nil || p.XML != nil || p.All != nil && looksElsewhere(p.All)
	})
}

// checkTree compares what was read with what encoding/json reads.
func checkTree(t *testing.T, tree *parse.JSON) {
	if tree.Doubled {
		return
	}
	var want any
	decoder := json.NewDecoder(bytes.NewReader(tree.Text))
	decoder.UseNumber()
	if err := decoder.Decode(&want); err != nil {
		t.Fatal(err)
	}
	if got := plain(tree, 0); fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", want) && !strings.Contains(fmt.Sprint(want), "\uFFFD") {
		t.Fatalf("%s is read as %#v, want %#v", tree.Text, got, want)
	}
}

// plain returns a value as encoding/json would.
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

// fieldsOf are the fields that findings are about, in their order. Each finding must say something.
func fieldsOf(t *testing.T, wrong []store.FieldError) string {
	t.Helper()
	var names []string
	for _, w := range wrong {
		names = append(names, cmp.Or(w.Field, "the whole"))
		if w.Message == "" || !parse.IsPlain([]byte(w.Field+w.Message)) {
			t.Errorf("bad finding %q", w)
		}
	}
	return strings.Join(names, " ")
}
