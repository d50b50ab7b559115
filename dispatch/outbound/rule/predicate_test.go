package rule

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"golang.org/x/text/encoding/simplifiedchinese"
)

// predicatesOf returns predicates that are right.
func predicatesOf(t testing.TB, text string) Predicates {
	t.Helper()
	ps, wrong := readPredicates(text)
	if wrong != nil {
		t.Fatalf("%s: %v", text, wrong)
	}
	return ps
}

func readPredicates(text string) (ps Predicates, wrong []store.FieldError) {
	wrong = parse.Decode([]byte(text), &ps, new(limits))
	return ps, wrong
}

// textOf returns predicates as they are written.
func textOf(t testing.TB, ps Predicates) string {
	t.Helper()
	text, err := parse.Encode(ps)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPredicatesOfJSON(t *testing.T) {
	t.Parallel()
	const body = `{
		"trade_state": "SUCCESS", "TRADE_TYPE": "JSAPI", "empty": "", "null": null, "yes": true, "list": ["a", {"b": 2}], "object": {},
		"amount": 12345678901234567890, "fen": 100, "yuan": "1.50", "rate": 1.50, "big": 1e3, "negative": -0.5, "word": "12a", "huge": 1e9999999999,
		"a/b": 1, "m~n": 2, "": 3, "中": "文", "escaped": "S\u0055CCESS"
	}`
	d := NewDocument(200, "application/json", []byte(body))
	for want, texts := range map[bool][]string{
		true: {
			`{"pointer":"/trade_state","eq":"SUCCESS"}`, `{"pointer":"/escaped","eq":"SUCCESS"}`,
			`{"pointer":"/trade_state","in":["CLOSED","SUCCESS"]}`,
			`{"pointer":"/trade_state","not_in":["CLOSED"]}`, `{"pointer":"/trade_state","ne":"CLOSED"}`,
			`{"pointer":"/trade_state","matches":"^SUC"}`, `{"pointer":"/fen","matches":"^1"}`,
			`{"pointer":"/yes","matches":"true"}`, `{"pointer":"/empty","eq":""}`,
			`{"pointer":"/null","eq":null}`, `{"pointer":"/null","exists":true}`,
			`{"pointer":"/yes","eq":true}`, `{"pointer":"/list/0","eq":"a"}`,
			`{"pointer":"/list/1/b","eq":2}`, `{"pointer":"/object","exists":true}`,
			`{"pointer":"/object","ne":"x"}`, `{"pointer":"","exists":true}`, `{"pointer":"/a~1b","eq":1}`,
			`{"pointer":"/m~0n","eq":2}`, `{"pointer":"/","eq":3}`, `{"pointer":"/中","eq":"文"}`,
			`{"pointer":"/amount","gt":12345678901234567889}`,
			`{"pointer":"/amount","gt":"12345678901234567889.99"}`,
			`{"pointer":"/amount","lt":12345678901234567890.000000000000000001}`,
			`{"pointer":"/rate","eq":1.5}`, `{"pointer":"/yuan","ge":1.5}`, `{"pointer":"/yuan","le":"1.5"}`,
			`{"pointer":"/big","eq":1000}`, `{"pointer":"/negative","lt":0}`,
			`{"pointer":"/missing","exists":false}`, `{"status":[200]}`, `{"status":["200-299",404]}`,
			`{"all":[{"pointer":"/fen","eq":100},{"status":[200]}]}`,
			`{"pointer":"/fen","eq":1},{"pointer":"/trade_state","eq":"SUCCESS"}`,
		},
		false: {
			`{"pointer":"/trade_state","eq":"success"}`,
			`{"pointer":"/trade_state","not_in":["CLOSED","SUCCESS"]}`, `{"pointer":"/null","matches":".*"}`,
			`{"pointer":"/object","matches":".*"}`, `{"pointer":"/null","eq":"null"}`,
			`{"pointer":"/list/01","exists":true}`, `{"pointer":"/list/2","exists":true}`,
			`{"pointer":"/list/9999999999999999999","exists":true}`,
			`{"pointer":"/rate","eq":"1.50"}`,
			`{"pointer":"/yuan","eq":1.5}`, `{"pointer":"/yuan","eq":"1.5"}`, `{"pointer":"/yuan","gt":1.5}`,
			`{"pointer":"/word","gt":0}`, `{"pointer":"/yes","ge":0}`, `{"pointer":"/null","lt":1}`,
			`{"pointer":"/huge","gt":1}`, `{"pointer":"/missing","exists":true}`,
			`{"pointer":"/fen","exists":false}`, `{"pointer":"/missing","ne":"x"}`,
			`{"pointer":"/missing","not_in":["x"]}`, `{"pointer":"/missing","eq":null}`, `{"status":[404]}`,
			`{"all":[{"pointer":"/fen","eq":100},{"status":[201]}]}`, `{"xml":"/xml/fen","exists":false}`,
		},
	} {
		for _, text := range texts {
			if got := predicatesOf(t, "["+text+"]").Match(d); got != want {
				t.Errorf("%s: %v, want %v", text, got, want)
			}
		}
	}
}

// TestNothingMatchesWhatCannotBeTrusted: not even what asks for something not to be there.
func TestNothingMatchesWhatCannotBeTrusted(t *testing.T) {
	t.Parallel()
	ps := predicatesOf(t, `[{"pointer":"/a","exists":true},{"pointer":"/a","exists":false},{"xml":"/a/b","exists":false},{"xml":"/a/b","exists":true}]`)
	gbk, err := simplifiedchinese.GBK.NewEncoder().String(`{"a":"成功"}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{
		"", " ", "success", "{", `{"a":1,}`, `{"a":1} x`, `{'a':1}`, `{"a":1,"a":1}`, `{"b":{"c":1,"c":2}}`, `[{"x":1},{"y":1,"\u0079":2}]`,
		`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"\u0061":1}`,
		"<a><b>1</b></a><a/>", "<a><b>1</a></b>", "x<a/>", "<a/>x", "<a>&unknown;</a>",
		`<!DOCTYPE a [<!ENTITY b "1">]><a><b>&b;</b></a>`, `<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>`,
		"<a><b>1</b><b>1</b></a>", "<a>\xff</a>", strings.Repeat("<a>", 300) + strings.Repeat("</a>", 300), `<?xml version="2.0"?><a/>`,
	} {
		if d := NewDocument(200, "", []byte(body)); ps.Match(d) {
			t.Errorf("%q matches; saw %s", parse.Cut(body, 60), ps.saw(d, "", nil))
		}
	}
	if !ps.Match(NewDocument(200, "text/json; charset=GB2312", []byte(gbk))) {
		t.Error("GBK that is declared does not match")
	}
	if ps.Match(NewDocument(200, "text/json; charset=GBK", []byte("{\"a\":\"\xff\xff\"}"))) {
		t.Error("what is not GBK matches")
	}
	if Predicates(nil).Match(NewDocument(200, "", []byte("{}"))) {
		t.Error("no predicate matches")
	}
	// Deep, but not too deep.
	deep := strings.Repeat(`{"a":`, 9_999) + "1" + strings.Repeat("}", 9_999)
	if !ps.Match(NewDocument(200, "", []byte(deep))) {
		t.Error("9,999 levels do not match")
	}
}

func TestPredicatesOfXML(t *testing.T) {
	t.Parallel()
	body := `<?xml version="1.0" encoding="UTF-8"?><!-- c -->
	<xml xmlns:p="urn:x"><return_code><![CDATA[SUCCESS]]></return_code> <total_fee> 100 </total_fee><mixed>a<![CDATA[&b]]>&amp;c&#65;</mixed>
	<p:prefixed>1</p:prefixed><empty/><open></open><parent><child>x</child></parent><flag>true</flag></xml>
	`
	d := NewDocument(200, "text/xml", []byte(body))
	for want, texts := range map[bool][]string{
		true: {
			`{"xml":"/xml/return_code","eq":"SUCCESS"}`, `{"xml":"/xml/total_fee","eq":100}`,
			`{"xml":"/xml/total_fee","eq":"100"}`, `{"xml":"/xml/total_fee","ge":99.5}`,
			`{"xml":"/xml/mixed","eq":"a&b&cA"}`, `{"xml":"/xml/prefixed","eq":1}`,
			`{"xml":"/xml/empty","eq":""}`, `{"xml":"/xml/parent/child","eq":"x"}`,
			`{"xml":"/xml/flag","eq":true}`, `{"xml":"/xml/missing","exists":false}`,
			`{"xml":"/xml","exists":true}`,
		},
		false: {
			`{"xml":"/xml/RETURN_CODE","eq":"SUCCESS"}`, `{"xml":"/return_code","exists":true}`,
			`{"xml":"/xml/parent","eq":"x"}`, `{"xml":"/xml/empty","eq":null}`,
			`{"xml":"/xml/missing","ne":"x"}`, `{"pointer":"/return_code","exists":false}`,
		},
	} {
		for _, text := range texts {
			if got := predicatesOf(t, "["+text+"]").Match(d); got != want {
				t.Errorf("%s: %v, want %v", text, got, want)
			}
		}
	}
	gbk, err := simplifiedchinese.GBK.NewEncoder().String(`<?xml version='1.0' encoding='gbk'?><xml><msg>成功</msg></xml>`)
	if err != nil {
		t.Fatal(err)
	}
	for _, contentType := range []string{"", "text/xml", "text/xml;charset=GBK", `application/xml; charset="gb18030"`} {
		if !predicatesOf(t, `[{"xml":"/xml/msg","eq":"成功"}]`).Match(NewDocument(200, contentType, []byte(gbk))) {
			t.Errorf("GBK with content type %q does not match", contentType)
		}
	}
}

func TestPredicatesSayWhatTheyWantAndSaw(t *testing.T) {
	t.Parallel()
	const credential = "hunter2-password"
	d := NewDocument(404, "", []byte(`{"state":"USERPAYING","n":12.50,"list":[],"o":{},"long":"`+strings.Repeat("é", 50)+`","echo":"hunter2\u002dpassword","x":"a\nb\u0000"}`))
	for text, want := range map[string][2]string{
		`[{"pointer":"/state","in":["SUCCESS"]}]`:                                   {`/state to be one of "SUCCESS"`, `/state is "USERPAYING"`},
		`[{"pointer":"/state","eq":"A"},{"status":[200]}]`:                          {`/state to be "A" or status 200`, `/state is "USERPAYING", status 404`},
		`[{"all":[{"pointer":"/n","ge":20},{"pointer":"/missing","exists":true}]}]`: {`/n to be at least 20 and /missing to be there`, `/n is 12.50, /missing is not there`},
		`[{"pointer":"/list","eq":"a"}]`:                                            {`/list to be "a"`, `/list is a list`},
		`[{"pointer":"/o","ne":null}]`:                                              {`/o to be other than null`, `/o has values of its own`},
		`[{"pointer":"/long","eq":"a"}]`:                                            {`/long to be "a"`, `/long is "` + strings.Repeat("é", 32) + `"…`},
		`[{"pointer":"/echo","eq":"a"}]`:                                            {`/echo to be "a"`, `/echo is "***"`},
		`[{"pointer":"/x","matches":"^\\d"}]`:                                       {`/x to match "^\\d"`, `/x is "a\nb"`},
		`[{"pointer":"","eq":1}]`:                                                   {"the body to be 1", "the body has values of its own"},
		`[{"xml":"/a","eq":1}]`:                                                     {"/a to be 1", "the body is not well-formed XML: the start"},
		`[{"pointer":"/n","gt":1},{"pointer":"/n","lt":2},{"pointer":"/n","le":"3"},{"pointer":"/n","not_in":["a",1]},{"pointer":"/n","exists":false}]`: {
			`/n to be more than 1 or /n to be less than 2 or /n to be at most "3" or /n to be none of "a", 1 or /n not to be there`, "/n is 12.50"},
	} {
		ps := predicatesOf(t, text)
		if got := ps.Expected(); got != want[0] {
			t.Errorf("%s expects %s\nwant %s", text, got, want[0])
		}
		if got := ps.saw(d, "the start", []string{credential}); got != want[1] {
			t.Errorf("%s saw %s\nwant %s", text, got, want[1])
		}
	}
	var many []string
	for i := range 64 {
		many = append(many, fmt.Sprintf(`{"pointer":"/%s%d","eq":"%s"}`, strings.Repeat("p", 100), i, strings.Repeat("v", 100)))
	}
	ps := predicatesOf(t, "["+strings.Join(many, ",")+"]")
	if e, s := ps.Expected(), ps.saw(d, "", nil); len(e) > maxSentence || len(s) > maxSentence {
		t.Errorf("%d and %d bytes for people", len(e), len(s))
	}
}

// TestPredicatesCompareWhatIsMeant has the cases of the security list.
func TestPredicatesCompareWhatIsMeant(t *testing.T) {
	t.Parallel()
	const amount = `{"n":12345678901234567890}`
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct {
		number          int
		predicate, body string
		want            bool
		saw             string
	}{
		{70, `{"pointer":"","exists":true}`, deep(10_001), false, notJSON + ": "},
		{70, `{"pointer":"","exists":true}`, deep(10_000), true, "the body is a list"},
		{73, `{"pointer":"/s","eq":"A"}`, `{"s":"A","s":"B"}`, false, `the body has the key "s" twice`},
		{74, `{"pointer":"/n","eq":12345678901234567890}`, amount, true, "/n is 12345678901234567890"},
		{74, `{"pointer":"/n","eq":12345678901234567891}`, amount, false, "/n is 12345678901234567890"},
		{75, `{"pointer":"/state","eq":"SUCCESS"}`, `{"STATE":"SUCCESS"}`, false, "/state is not there"},
	} {
		t.Run(fmt.Sprintf("case %d: %s", c.number, c.predicate), func(t *testing.T) {
			d, ps := NewDocument(200, "", []byte(c.body)), predicatesOf(t, "["+c.predicate+"]")
			if got := ps.Match(d); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
			if saw := ps.saw(d, "", nil); saw != c.saw {
				t.Errorf("saw %s, want %s", saw, c.saw)
			}
		})
	}
}
