package main

import (
	"net/http"
	"strings"
	"testing"
)

// aHead is a link as the server writes one.
var aHead = "40:" + strings.Repeat("0b", 32)

func TestAuditList(t *testing.T) {
	t.Parallel()
	exchanges(t, map[string]string{"GET /v1/audit": listOf(`{"id":"x","at":"2026-11-21T10:00:00.000Z",
		"actor":"till (key_1)","address":"192.0.2.7","action":"callback.cancel","object":"o","reason":"asked",
		"before":{"state":"scheduled"},
		"after":{"state":"canceled"},"detail":null,"sequence":12,"hash":"0a"}`)},
		exchange{line: "audit list --limit 7", call: "GET /v1/audit?limit=7", says: []string{
			"till (key_1)", "192.0.2.7", "callback.cancel", `{"state":"scheduled"}`, `{"state":"canceled"}`,
			"asked", "12",
		}},
		exchange{line: "audit list --json", says: []string{`"hash": "0a"`}})
	exchanges(t, map[string]string{"GET /v1/audit": listOf()},
		exchange{line: "audit list", says: []string{"nothing was changed"}})
}

func TestAuditVerify(t *testing.T) {
	t.Parallel()
	next := "10:" + strings.Repeat("0a", 32)
	address := handling(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch {
		case r.URL.Path != "/v1/audit/verify" || q.Get("expect") != aHead:
			t.Errorf("asked %s", r.URL)
		case q.Get("from") == "":
			respond(t, w, `{"sound":true,"checked":10,"broken":null,"next":"`+next+`",
				"head":"`+aHead+`","unchained":0}`)
		case q.Get("from") == next:
			respond(t, w, `{"sound":true,"checked":30,"broken":null,"next":null,
				"head":"`+aHead+`","unchained":2}`)
		default:
			t.Errorf("from %s", q.Get("from"))
		}
	})
	term := at(address)
	term.ends(t, exitOK, "audit", "verify", "--expect", aHead)
	says(t, term.stdout.String(), "checked 40 entries", "2 entries of the last seconds", "the chain is sound",
		"head: "+aHead)
	term = at(address)
	term.ends(t, exitOK, "audit", "verify", "--json", "--expect", aHead)
	says(t, term.stdout.String(), `"checked": 40`, `"sound": true`)
	at(address).ends(t, exitUsage, "audit", "verify", "--expect", "40")
}

func TestAuditVerifySaysWhatIsBroken(t *testing.T) {
	t.Parallel()
	for fault, words := range map[string]string{
		"changed": "is not the one that was chained", "missing": "were removed before",
		"cut":    "the chain ends here",
		"beyond": "behind the head", "unexpected": "another hash here than was expected",
	} {
		address, _ := fakeServer(t, map[string]string{"GET /v1/audit/verify": `{"sound":false,"checked":11,
			"broken":{"fault":"` + fault + `","sequence":12,"id":"01X"},"next":null,
			"head":"` + aHead + `","unchained":0}`})
		for _, more := range [][]string{nil, {"--json"}} {
			term := at(address)
			if code := term.invoke(append([]string{"audit", "verify"}, more...)...); code != exitFailed {
				t.Errorf("%s: exit code %d", fault, code)
			}
			if says(t, term.stdout.String(), "12", "01X"); more == nil {
				says(t, term.stdout.String(), "the chain is broken at entry 12", words)
			}
		}
	}
}
