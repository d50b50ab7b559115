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

// After SQL was restored from a backup, a held process leaves the index on Redis as it found it and names
// what only the index knows; a rebuild makes it SQL's again.
func TestHeldOnRedisNamesWhatSQLForgot(t *testing.T) {
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
	batch := slices.Repeat([]any{one}, 130) // more than one page of an answer names
	before.Call(t, http.MethodPost, "/v1/callbacks/batch", map[string]any{"callbacks": batch}, &accepted)
	var forgotten []string
	for _, r := range accepted.Results {
		forgotten = append(forgotten, r.Callback.ID)
	}
	testserver.Until(t, "the index knows them", func() bool { return before.Counters(t).Items() == 130 })
	// A rebuild gives the index a generation that the older database below has never heard of.
	before.Call(t, http.MethodPost, "/v1/index/rebuild", nil, nil)
	before.End(t)

	held := onCopy()
	id := held.Send(t, "http://127.0.0.1:1/")
	testserver.Until(t, "the index has the one that was accepted since", func() bool {
		return held.Counters(t).Items() == 131
	})
	do := func(code int, args ...string) *cmdtest.Terminal {
		term := program.Terminal()
		term.Ends(t, code, append(args, held.Flags()...)...)
		return term
	}
	term := do(console.ExitFailed, "verify", "--unknown")
	slices.Sort(forgotten)
	if got := term.Stdout.String(); got != strings.Join(forgotten, "\n")+"\n" {
		t.Errorf("unknown:\n%s", got)
	}
	cmdtest.Says(t, term.Stderr.String(), "the index has generation")
	do(console.ExitOK, "rebuild")
	do(console.ExitOK, "verify")
	if got := held.State(t, id); got != "scheduled" {
		t.Errorf("after the rebuild it is %s", got)
	}
}
