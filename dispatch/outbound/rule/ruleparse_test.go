package rule

import (
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

func TestParseRuleHasOneSpelling(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"status":[200]}`:                                                 `{"status":[200]}`,
		` { "status" : [ "204", 200 ] } `:                                  `{"status":[204,200]}`,
		`{"status":["200-299", "201-201"]}`:                                `{"status":["200-299",201]}`,
		`{"body":{"trim":true,"equals":"OK"},"status":["200-204"]}`:        `{"status":["200-204"],"body":{"equals":"OK","trim":true}}`,
		`{"body":{"trim":false,"equals":"OK"}}`:                            `{"body":{"equals":"OK"}}`,
		`{"body":{"iequals":"<成功>&"}}`:                                     `{"body":{"iequals":"<成功>&"}}`,
		`{"body":{"contains":"\u006fk"}}`:                                  `{"body":{"contains":"ok"}}`,
		`{"body":{"prefix":"a/b\/"}}`:                                      `{"body":{"prefix":"a/b/"}}`,
		`{"body":{"regex":"^a\\d+$"}}`:                                     `{"body":{"regex":"^a\\d+$"}}`,
		`{"body":{"json":[{"eq":1.0,"pointer":"/a"}]}}`:                    `{"body":{"json":[{"pointer":"/a","eq":1.0}]}}`,
		`{"max_defers":7,"defer_after":"90s","defer_if":{"status":[423]}}`: `{"defer_if":{"status":[423]},"defer_after":"1m30s","max_defers":7}`,
		`{"defer_after":"0.01d"}`:                                          `{"defer_after":"14m24s"}`,
		`{"defer_after":"60m"}`:                                            `{"defer_after":"1h"}`,
		`{"defer_after":"1.5s"}`:                                           `{"defer_after":"1.5s"}`,
		`{"defer_after":"120s"}`:                                           `{"defer_after":"2m"}`,
		`{"permanent_if":{"body":{"json":[{"pointer":"/code","in":["ORDER_NOT_FOUND"]}]},"status":["400-499"]}}`:                                                                            `{"permanent_if":{"status":["400-499"],"body":{"json":[{"pointer":"/code","in":["ORDER_NOT_FOUND"]}]}}}`,
		`{"status":["200-299"],"body":{"json":[{"xml":"/a/b","exists":true}]},"permanent_if":{"status":[404]},"defer_if":{"body":{"contains":"busy"}},"defer_after":"3s","max_defers":100}`: `{"status":["200-299"],"body":{"json":[{"xml":"/a/b","exists":true}]},"permanent_if":{"status":[404]},"defer_if":{"body":{"contains":"busy"}},"defer_after":"3s","max_defers":100}`,
	} {
		got, wrong := Parse([]byte(text))
		if wrong != nil || string(got) != want {
			t.Errorf("%s:\n got %s %v\nwant %s", text, got, wrong, want)
		}
	}
}

func TestParseRuleNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	many := `{"json":[` + strings.Repeat(`{"status":[200]},`, 40) + `{"status":[200]}]}`
	// What is accepted can be read again: some characters are longer as they are kept than as a caller writes them.
	long := `{"pointer":"/a","eq":"` + strings.Repeat("\u2028", 500) + `"}`
	for want, texts := range map[string][]string{
		"the whole": {
			``, `null`, `{}`, `{"status":[200]`, "{\"a\":\"\xff\"}",
			`{"body":{"json":[` + strings.Repeat(long+",", 7) + long + `]}}`,
		},
		"name":   {`{"name":"x"}`},
		"Status": {`{"Status":[200]}`},
		"status": {
			`{"status":[200],"status":[201]}`, `{"status":[]}`, `{"status":["100-299"]}`,
			`{"status":["200-499"]}`, `{"status":[302]}`,
		},
		"status[1]": {`{"status":[200,"300-200"]}`},
		"":          {`{"status":["200-299","400-499"]}`, `{"permanent_if":{"status":[301,"100-199"]}}`},
		"body":      {`{"body":"success"}`, `{"body":{}}`, `{"body":{"trim":true}}`},
		"body.equals": {
			`{"body":{"equals":""}}`, `{"body":{"equals":"a","equals":"b"}}`, `{"body":{"equals":"a\u0000"}}`,
			`{"body":{"equals":"a\n"}}`, `{"body":{"equals":" a","trim":true}}`,
		},
		"body.contains":                     {`{"body":{"equals":"a","contains":"b"}}`},
		"body.trim":                         {`{"body":{"equals":"a","trim":1}}`},
		"body.suffix":                       {`{"body":{"equals":"a","suffix":"b"}}`},
		"body.regex":                        {`{"body":{"regex":"("}}`},
		"body.json":                         {`{"body":{"json":[]}}`},
		"body.json[0] body.trim":            {`{"body":{"json":[{"pointer":"/a"}],"trim":true}}`},
		"permanent_if":                      {`{"permanent_if":{}}`},
		"permanent_if.code":                 {`{"permanent_if":{"code":"x"}}`},
		"permanent_if.status[0]":            {`{"permanent_if":{"status":[600]}}`},
		"permanent_if.body.json[1].pointer": {`{"permanent_if":{"body":{"json":[{"status":[200]},{"pointer":"x","eq":1}]}}}`},
		"defer_if.body.regex":               {`{"defer_if":{"body":{"regex":""}}}`},
		"defer_after": {
			`{"defer_after":3}`, `{"defer_after":"999ms"}`, `{"defer_after":"1h1s"}`, `{"defer_after":"2d"}`,
			`{"defer_after":"-3s"}`, `{"defer_after":"1e400d"}`, `{"defer_after":"d"}`,
		},
		"max_defers":                         {`{"max_defers":0}`, `{"max_defers":10001}`, `{"max_defers":1.5}`},
		"x status[0] body.y body max_defers": {`{"x":1,"status":[1],"body":{"y":2},"max_defers":0}`},
		"defer_if.body.json":                 {`{"body":` + many + `,"defer_if":{"body":` + many + `}}`},
	} {
		for _, text := range texts {
			got, wrong := Parse([]byte(text))
			if named := fieldsOf(t, wrong); named != want || (got == "") != (want != "") {
				t.Errorf("%s:\n named %q\nwant %q (%v)", parse.Cut(text, 80), named, want, wrong)
			}
		}
	}
}

func FuzzParseRule(f *testing.F) {
	for _, p := range Presets() {
		f.Add(string(p.Rule))
	}
	f.Add(`{"body":{"regex":"(a|b){3}","trim":true},"permanent_if":{"status":[404]},"defer_if":{"body":{"json":[{"all":[{"xml":"/a","gt":"1.5"}]}]}},"defer_after":"2m","max_defers":9}`)
	f.Add(`{"status":["200-299"],"status":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		rule, wrong := Parse([]byte(text))
		if (rule == "") != (len(wrong) > 0) {
			t.Fatalf("%q, %v", rule, wrong)
		}
		if rule == "" {
			return
		}
		if again, wrong := Parse([]byte(rule)); again != rule {
			t.Fatalf("%s becomes %s %v", rule, again, wrong)
		}
		r, _ := Compile([]byte(rule))
		if c, why := r.Conclude(CustomName, NewDocument(200, "", []byte(text)), nil); why != nil && max(len(why.Expected), len(why.Saw)) > maxSentence {
			t.Fatalf("%s ends as %d %+v", rule, c, why)
		}
	})
}
