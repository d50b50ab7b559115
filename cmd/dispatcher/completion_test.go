package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// The scripts know every command and its flags; bash itself completes with its one.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		term := program.Terminal()
		term.Ends(t, console.ExitOK, "completion", shell)
		for _, word := range []string{"doctor", "import", "callback", "send", "hold", "unknown", "bench", "phases", "rotate-secret", "operate", "on-result-url", "runs"} {
			if !strings.Contains(term.Stdout.String(), word) {
				t.Errorf("%s: no %q in\n%s", shell, word, term.Stdout.String())
			}
		}
		if strings.Contains(term.Stdout.String(), "bench-server") {
			t.Errorf("%s: offers what is not for people", shell)
		}
		if shell != "bash" || testing.Short() { // the short tests need nothing installed
			continue
		}
		for line, want := range map[string]string{
			"dispatcher doc": "doctor", "dispatcher verify --unk": "--unknown", "dispatcher callback ca": "cancel", "dispatcher callback send --ur": "--url", "dispatcher completion fi": "fish", "dispatcher benc": "bench",
			"dispatcher bench --conc": "--concurrency", "dispatcher endpoint rot": "rotate-secret", "dispatcher key create --scope op": "operate", "dispatcher pau": "pause",
			"dispatcher lane pause --un": "--until", "dispatcher endpoint set --clea": "--clear", "dispatcher callback --server x expl": "explain",
			"dispatcher poll res": "resolve", "dispatcher poll create --hold": "--hold-if", "dispatcher sched": "schedule", "dispatcher schedule create --callback-": "--callback-file",
		} {
			words := strings.Fields(line)
			script := term.Stdout.String() + "\nCOMP_WORDS=(" + line + ")\nCOMP_CWORD=" + string(rune('0'+len(words)-1)) + "\n_dispatcher\necho \"${COMPREPLY[@]}\""
			out, err := exec.Command("bash", "-c", script).CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != want {
				t.Errorf("%q completes to %q, want %q (%v)", line, got, want, err)
			}
		}
	}
	program.Terminal().Ends(t, console.ExitUsage, "completion", "csh")
}
