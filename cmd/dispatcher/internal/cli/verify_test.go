package cli

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

func TestVerifySaysWhatDiffersAndWhatMendsIt(t *testing.T) {
	t.Parallel()
	late := strings.Repeat(cmdtest.OneID+`","`, 99) + cmdtest.OneID
	for _, tc := range []struct {
		answer string
		code   int
		want   []string
	}{
		{`{"clean":true,"rows":3,"items":3}`, console.ExitOK, []string{"compared 3 open callbacks", "they agree"}},
		{`{"clean":true,"rows":30,"items":10,"beyond_horizon":20}`, console.ExitOK,
			[]string{"20 callbacks are due beyond the horizon", "they agree"}},
		{`{"rows":3,"items":2,"missing":1,"missing_ids":["` + cmdtest.OneID + `"]}`, console.ExitFailed,
			[]string{"they differ", "missing: 1 open in SQL", "cure: none needed: the sweep", cmdtest.OneID}},
		{`{"rows":3,"items":5,"extra":2,"unknown":2,"unknown_ids":["` + cmdtest.OneID + `","` + cmdtest.OtherID + `"]}`, console.ExitFailed,
			[]string{"unknown: 2 in the index, and SQL has no row of them", `"dispatcher import"`, cmdtest.OneID + " " + cmdtest.OtherID}},
		{`{"rows":3,"items":4,"extra":1,"ended":1,"ended_ids":["` + cmdtest.OneID + `"]}`, console.ExitFailed,
			[]string{"ended: 1 in the index, and terminal in SQL"}},
		{`{"rows":3,"items":3,"late":120,"late_ids":["` + late + `"]}`, console.ExitFailed,
			[]string{"late: 120", "and 117 more (--all names them)"}},
		{`{"rows":0,"items":0,"generation":3,"index_generation":4}`, console.ExitFailed,
			[]string{"the index has generation 4, SQL says 3", "cure: \"dispatcher rebuild\", or a start without --hold"}},
	} {
		address, _ := cmdtest.FakeServer(t, map[string]string{"POST /v1/index/verify": tc.answer})
		term := program.At(address)
		if code := term.Invoke("verify"); code != tc.code || len(term.Lines()) != 0 {
			t.Errorf("%s: exit code %d, %q", tc.answer, code, term.Lines())
		}
		cmdtest.Says(t, term.Stdout.String(), tc.want...)
	}
}

// The list of unknown ids is whole, and nothing else is on the standard output.
func TestVerifyUnknownPrintsEveryID(t *testing.T) {
	t.Parallel()
	var ids []string
	for i := range 250 {
		ids = append(ids, fmt.Sprintf("cb_01JD7Q2Z3K4M5N6P7R8S9TA%03d", i))
	}
	address, requests := cmdtest.FakeServer(t, map[string]string{
		"POST /v1/index/verify": `{"rows":1,"items":251,"extra":250,"unknown":250,"unknown_ids":["` + strings.Join(ids, `","`) + `"]}`,
	})
	term := program.At(address)
	term.Ends(t, console.ExitFailed, "verify", "--unknown")
	if want := strings.Join(ids, "\n") + "\n"; term.Stdout.String() != want {
		t.Errorf("printed %q", term.Stdout.String())
	}
	cmdtest.Says(t, term.Stderr.String(), "unknown: 250")
	if got := requests(); len(got) != 1 || got[0].Body["all"] != true {
		t.Errorf("asked %+v", got)
	}
	program.At(address).Ends(t, console.ExitUsage, "verify", "--unknown", "--json")
}

func TestRebuild(t *testing.T) {
	t.Parallel()
	program.Exchanges(t, map[string]string{"POST /v1/index/rebuild": `{"dry_run":true,"open":7,"claimed":2,"generation":0,"took":"3ms"}`},
		cmdtest.Exchange{
			Line: "rebuild --dry-run", Says: []string{"7 open callbacks"}, Call: "POST /v1/index/rebuild", Body: `{"dry_run":true}`,
		})
}

func TestProblemsAreOneLine(t *testing.T) {
	t.Parallel()
	address, _ := cmdtest.FakeServer(t, map[string]string{"POST /v1/callbacks": `{"type":"about:blank","title":"Unprocessable Entity",
 "status":422,"detail":"invalid request","code":"invalid",
 "errors":[{"field":"url","message":"is needed"},{"field":"delay","message":"is \u001b negative"}]}`})
	unknown := cmdtest.Answering(t, 401, `{"title":"Unauthorized","status":401,"detail":"the request needs a valid key","code":"unauthorized"}`)
	file := cmdtest.WriteFile(t, "key", "k\n")
	elsewhere := cmdtest.Handling(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/index/verify" {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
			return
		}
		cmdtest.Respond(t, w, "<html>")
	})
	for _, tc := range []struct {
		args []string
		env  string
		want string // empty: any
	}{
		{[]string{"callback", "send", "--url", "x", "--server", address}, "DISPATCHER_ADMIN_KEY=k",
			`invalid request (422 invalid): url is needed; delay is \x1b negative`},
		{[]string{"callback", "get", cmdtest.OneID, "--server", address}, "DISPATCHER_KEY=k", "there is no such thing in this project (404 not_found)"},
		{[]string{"verify", "--server", "http://127.0.0.1:1"}, "DISPATCHER_KEY=k",
			`nobody listens at http://127.0.0.1:1; is "dispatcher serve" running there?`},
		// Mostly it is another server's key.
		{[]string{"key", "list", "--server", unknown}, "DISPATCHER_KEY=k",
			unknown + " does not know this key, or it has ended; it is from DISPATCHER_KEY (401 unauthorized)"},
		{[]string{"key", "list", "--server", unknown}, "DISPATCHER_KEY_FILE=" + file,
			unknown + " does not know this key, or it has ended; it is from " + file + " (401 unauthorized)"},
		// Answers that are not a dispatcher's.
		{[]string{"verify", "--server", elsewhere}, "DISPATCHER_KEY=k", ""},
		{[]string{"rebuild", "--server", elsewhere}, "DISPATCHER_KEY=k", ""},
		{[]string{"callback", "list", "--server", elsewhere}, "DISPATCHER_KEY=k", ""},
	} {
		term := program.Terminal(tc.env)
		code, lines := term.Invoke(tc.args...), term.Lines()
		if code != console.ExitFailed || len(lines) != 1 || tc.want != "" && lines[0] != "dispatcher: "+tc.want {
			t.Errorf("%v: exit code %d, said %q", tc.args, code, lines)
		}
	}
}
