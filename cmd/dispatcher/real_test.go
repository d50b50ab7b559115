package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// The tests of this file need real servers.

// TestHoldKeepsTheIndexAfterARestore restores SQL from a backup. A process with --hold leaves the index on
// Redis unchanged, and verify lists the ids that only the index has. A rebuild makes the index equal to SQL.
func TestHoldKeepsTheIndexAfterARestore(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("needs a real PostgreSQL and a real Redis")
	}
	common := slices.Concat(cmdtest.BothKeys(), apptest.OwnIndex(t), []string{"--hold"})
	onCopy := func() *apptest.Running {
		return apptest.Start(t, apptest.Settings(t, append(common, "--database-url="+apptest.Migrated(t))...))
	}
	before := onCopy()
	var accepted struct {
		Results []struct{ Callback client.Callback }
	}
	one := map[string]any{"url": "http://127.0.0.1:1/", "payload": 1}
	batch := slices.Repeat([]any{one}, 130) // more than a response lists without "all"
	before.Call(t, http.MethodPost, "/v1/callbacks/batch", map[string]any{"callbacks": batch}, &accepted)
	var missingInSQL []string
	for _, r := range accepted.Results {
		missingInSQL = append(missingInSQL, r.Callback.ID)
	}
	testserver.Until(t, "the index has them", func() bool { return before.Counters(t).Items() == 130 })
	// A rebuild gives the index a generation that the older database below does not have.
	before.Call(t, http.MethodPost, "/v1/index/rebuild", nil, nil)
	before.End(t)

	notSending := onCopy()
	id := notSending.Send(t, "http://127.0.0.1:1/")
	testserver.Until(t, "the index has the callback that was accepted after the restore", func() bool {
		return notSending.Counters(t).Items() == 131
	})
	do := func(code int, args ...string) *cmdtest.Terminal {
		term := program.Terminal()
		term.Ends(t, code, append(args, notSending.Flags()...)...)
		return term
	}
	term := do(console.ExitFailed, "verify", "--unknown")
	slices.Sort(missingInSQL)
	if got := term.Stdout.String(); got != strings.Join(missingInSQL, "\n")+"\n" {
		t.Errorf("unknown:\n%s", got)
	}
	cmdtest.Contains(t, term.Stderr.String(), "the index has generation")
	do(console.ExitOK, "rebuild")
	do(console.ExitOK, "verify")
	if got := notSending.State(t, id); got != "scheduled" {
		t.Errorf("after the rebuild its state is %s", got)
	}
}
