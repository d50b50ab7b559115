package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestVerifySaysWhatDiffersAndWhatMendsIt(t *testing.T) {
	t.Parallel()
	late := strings.Repeat(oneID+`","`, 99) + oneID
	for _, tc := range []struct {
		answer string
		code   int
		want   []string
	}{
		{`{"clean":true,"rows":3,"items":3}`, exitOK, []string{"compared 3 open callbacks", "they agree"}},
		{`{"clean":true,"rows":30,"items":10,"beyond_horizon":20}`, exitOK,
			[]string{"20 callbacks are due beyond the horizon", "they agree"}},
		{`{"rows":3,"items":2,"missing":1,"missing_ids":["` + oneID + `"]}`, exitFailed,
			[]string{"they differ", "missing: 1 open in SQL", "cure: none needed: the sweep", oneID}},
		{`{"rows":3,"items":5,"extra":2,"unknown":2,"unknown_ids":["` + oneID + `","` + otherID + `"]}`, exitFailed,
			[]string{"unknown: 2 in the index, and SQL has no row of them", `"dispatcher import"`, oneID + " " + otherID}},
		{`{"rows":3,"items":4,"extra":1,"ended":1,"ended_ids":["` + oneID + `"]}`, exitFailed,
			[]string{"ended: 1 in the index, and terminal in SQL"}},
		{`{"rows":3,"items":3,"late":120,"late_ids":["` + late + `"]}`, exitFailed,
			[]string{"late: 120", "and 117 more (--all names them)"}},
		{`{"rows":0,"items":0,"generation":3,"index_generation":4}`, exitFailed,
			[]string{"the index has generation 4, SQL says 3", "cure: \"dispatcher rebuild\", or a start without --hold"}},
	} {
		address, _ := fakeServer(t, map[string]string{"POST /v1/index/verify": tc.answer})
		term := at(address)
		if code := term.invoke("verify"); code != tc.code || len(term.lines()) != 0 {
			t.Errorf("%s: exit code %d, %q", tc.answer, code, term.lines())
		}
		says(t, term.stdout.String(), tc.want...)
	}
}

// The list of unknown ids is whole, and nothing else is on the standard output.
func TestVerifyUnknownPrintsEveryID(t *testing.T) {
	t.Parallel()
	var ids []string
	for i := range 250 {
		ids = append(ids, fmt.Sprintf("cb_01JD7Q2Z3K4M5N6P7R8S9TA%03d", i))
	}
	address, requests := fakeServer(t, map[string]string{
		"POST /v1/index/verify": `{"rows":1,"items":251,"extra":250,"unknown":250,"unknown_ids":["` + strings.Join(ids, `","`) + `"]}`,
	})
	term := at(address)
	term.ends(t, exitFailed, "verify", "--unknown")
	if want := strings.Join(ids, "\n") + "\n"; term.stdout.String() != want {
		t.Errorf("printed %q", term.stdout.String())
	}
	says(t, term.stderr.String(), "unknown: 250")
	if got := requests(); len(got) != 1 || got[0].body["all"] != true {
		t.Errorf("asked %+v", got)
	}
	at(address).ends(t, exitUsage, "verify", "--unknown", "--json")
}

func TestRebuild(t *testing.T) {
	t.Parallel()
	exchanges(t, map[string]string{"POST /v1/index/rebuild": `{"dry_run":true,"open":7,"claimed":2,"generation":0,"took":"3ms"}`},
		exchange{
			line: "rebuild --dry-run", says: []string{"7 open callbacks"}, call: "POST /v1/index/rebuild", body: `{"dry_run":true}`,
		})
}
