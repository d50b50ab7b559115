package cli

import (
	"net/http"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// aHead is a link as the server writes one.
var aHead = "40:" + strings.Repeat("0b", 32)

func TestAuditList(t *testing.T) {
	t.Parallel()
	program.Exchanges(t, map[string]string{"GET /v1/audit": cmdtest.ListOf(`{"id":"x","at":"2026-11-21T10:00:00.000Z",
		"actor":"till (key_1)","address":"192.0.2.7","action":"callback.cancel","object":"o","reason":"asked",
		"before":{"state":"scheduled"},
		"after":{"state":"canceled"},"detail":null,"sequence":12,"hash":"0a"}`)},
		cmdtest.Exchange{Line: "audit list --limit 7", Call: "GET /v1/audit?limit=7", Says: []string{
			"till (key_1)", "192.0.2.7", "callback.cancel", `{"state":"scheduled"}`, `{"state":"canceled"}`,
			"asked", "12",
		}},
		cmdtest.Exchange{Line: "audit list --json", Says: []string{`"hash": "0a"`}})
	program.Exchanges(t, map[string]string{"GET /v1/audit": cmdtest.ListOf()},
		cmdtest.Exchange{Line: "audit list", Says: []string{"nothing was changed"}})
}

func TestAuditVerify(t *testing.T) {
	t.Parallel()
	next := "10:" + strings.Repeat("0a", 32)
	address := cmdtest.Handling(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch {
		case r.URL.Path != "/v1/audit/verify" || q.Get("expect") != aHead:
			t.Errorf("asked %s", r.URL)
		case q.Get("from") == "":
			cmdtest.Respond(t, w, `{"sound":true,"checked":10,"broken":null,"next":"`+next+`",
				"head":"`+aHead+`","unchained":0}`)
		case q.Get("from") == next:
			cmdtest.Respond(t, w, `{"sound":true,"checked":30,"broken":null,"next":null,
				"head":"`+aHead+`","unchained":2}`)
		default:
			t.Errorf("from %s", q.Get("from"))
		}
	})
	term := program.At(address)
	term.Ends(t, console.ExitOK, "audit", "verify", "--expect", aHead)
	cmdtest.Says(t, term.Stdout.String(), "checked 40 entries", "2 entries of the last seconds", "the chain is sound",
		"head: "+aHead)
	term = program.At(address)
	term.Ends(t, console.ExitOK, "audit", "verify", "--json", "--expect", aHead)
	cmdtest.Says(t, term.Stdout.String(), `"checked": 40`, `"sound": true`)
	program.At(address).Ends(t, console.ExitUsage, "audit", "verify", "--expect", "40")
}

func TestAuditVerifySaysWhatIsBroken(t *testing.T) {
	t.Parallel()
	for fault, words := range map[string]string{
		"changed": "is not the one that was chained", "missing": "were removed before",
		"cut":    "the chain ends here",
		"beyond": "behind the head", "unexpected": "another hash here than was expected",
	} {
		address, _ := cmdtest.FakeServer(t, map[string]string{"GET /v1/audit/verify": `{"sound":false,"checked":11,
			"broken":{"fault":"` + fault + `","sequence":12,"id":"01X"},"next":null,
			"head":"` + aHead + `","unchained":0}`})
		for _, more := range [][]string{nil, {"--json"}} {
			term := program.At(address)
			if code := term.Invoke(append([]string{"audit", "verify"}, more...)...); code != console.ExitFailed {
				t.Errorf("%s: exit code %d", fault, code)
			}
			if cmdtest.Says(t, term.Stdout.String(), "12", "01X"); more == nil {
				cmdtest.Says(t, term.Stdout.String(), "the chain is broken at entry 12", words)
			}
		}
	}
}
