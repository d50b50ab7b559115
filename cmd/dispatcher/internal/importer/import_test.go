package importer

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// program is a program with the commands of this package.
var program = cmdtest.Program(func() any {
	return &struct {
		Import Command `cmd:""`
	}{}
})

func TestMain(m *testing.M) { program.RunTests(m) }

func TestTranscripts(t *testing.T) { program.Transcripts(t, "DISPATCHER_KEY=k") }

// importLines writes a file of n callbacks that stay scheduled.
func importLines(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b,
			`{"url": "http://127.0.0.1:1/%d", "ref": "order-%d",  "payload": {"paid" : %d}, "delay": "1h"}`+
				"\n", i, i, i)
	}
	return cmdtest.WriteFile(t, "callbacks.ndjson", b.String())
}

// importing runs the command against a server and returns the summary and the error output. The command must
// end with the exit code.
func importing(t *testing.T, r *apptest.Running, code int, path string,
	args ...string) (sum summary, stderr string) {
	t.Helper()
	term := program.Terminal()
	term.Ends(t, code, append([]string{"import", "--json", path}, r.Flags(args...)...)...)
	if text := term.Stdout.String(); text != "" {
		if err := json.Unmarshal([]byte(text), &sum); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	return sum, term.Stderr.String()
}

// TestResume checks that --resume skips the lines of the checkpoint. Callbacks that were accepted after it
// are replays and not created again.
func TestResume(t *testing.T) {
	t.Parallel()
	r := apptest.Start(t, apptest.Settings(t))
	path := importLines(t, 2500)
	if sum, stderr := importing(t, r, console.ExitOK, path); sum.Accepted != 2500 {
		t.Fatalf("%+v, %s", sum, stderr)
	}
	content, err := os.ReadFile(path + ".progress")
	if err != nil {
		t.Fatal(err)
	}
	var mark progress
	if err := json.Unmarshal(content, &mark); err != nil || mark.Line != 2500 || !mark.Finished {
		t.Fatalf("%+v, %v", mark, err)
	}
	if sum, _ := importing(t, r, console.ExitOK, path, "--resume"); sum.Lines != 0 || sum.Skipped != 2500 {
		t.Errorf("resume of a finished import: %+v", sum)
	}
	// This is the state after a kill: the server accepted lines that the checkpoint does not cover.
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mark.Line, mark.Lines, mark.Finished = 1000, 1000, false
	mark.Offset = int64(len(strings.Join(strings.SplitAfter(string(text), "\n")[:1000], "")))
	content, err = json.Marshal(mark)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".progress", content, 0o600); err != nil {
		t.Fatal(err)
	}
	sum, _ := importing(t, r, console.ExitOK, path, "--resume")
	if sum.Skipped != 1000 || sum.Lines != 1500 || sum.Replayed != 1500 || sum.Accepted != 0 {
		t.Errorf("resume in the middle: %+v", sum)
	}
	if got := r.Counters(t).Items(); got != 2500 {
		t.Errorf("%d callbacks, not 2500", got)
	}
	// --resume refuses an edited file.
	if err := os.WriteFile(path, append(text, []byte("{}\n")...), 0o600); err != nil {
		t.Fatal(err)
	}
	_, stderr := importing(t, r, console.ExitUsage, path, "--resume")
	cmdtest.Contains(t, stderr, "was changed since")
}

// openImport returns an import that has not started. Its requests go to the handler without a network.
func openImport(
	t *testing.T, path string, rate float64, server http.HandlerFunc,
) (*importer, *cmdtest.Terminal) {
	t.Helper()
	term := program.Terminal()
	term.Transport = testserver.InProcess{Handler: server}
	cl, err := remote.New(&term.Console, remote.Flags{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	source, err := OpenSource(&term.Console, path)
	if err != nil {
		t.Fatal(err)
	}
	checkpoint, err := openCheckpoint(&term.Console, source, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		source.Close()
		if err := checkpoint.close(); err != nil {
			t.Error(err)
		}
	})
	im := &importer{c: &term.Console, cl: cl, source: source, checkpoint: checkpoint, rate: rate,
		progress: term.NewProgress("lines", source.Lines)}
	return im, term
}

// batchOf returns the URLs of a batch.
func batchOf(t *testing.T, r *http.Request) []string {
	t.Helper()
	var in struct{ Callbacks []struct{ URL string } }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		t.Error(err)
	}
	var urls []string
	for _, cb := range in.Callbacks {
		urls = append(urls, cb.URL)
	}
	return urls
}

// answerAll responds with the same result for each of n callbacks.
func answerAll(t *testing.T, w http.ResponseWriter, n int, result string) {
	t.Helper()
	w.WriteHeader(http.StatusMultiStatus)
	cmdtest.Respond(t, w, `{"results":[`+strings.Repeat(result+",", n-1)+result+`]}`)
}

const resultAccepted = `{"status":202,"callback":{}}`

// TestImportRetries checks that a batch is retried, not before the time of Retry-After. import.txt has the
// batches that are halved.
func TestImportRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls []time.Time
		serve := func(w http.ResponseWriter, r *http.Request) {
			calls = append(calls, time.Now())
			urls := batchOf(t, r)
			switch len(calls) {
			case 1:
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusServiceUnavailable)
				cmdtest.Respond(t, w, `{"title":"Service Unavailable","status":503,`+
					`"detail":"the database cannot commit; try again later"}`)
			case 2:
				panic(http.ErrAbortHandler) // the connection breaks
			case 3:
				answerAll(t, w, len(urls),
					`{"status":409,"problem":{"status":409,"code":"idempotency_in_progress"}}`)
			default:
				answerAll(t, w, len(urls), resultAccepted)
			}
		}
		file := cmdtest.WriteFile(t, "a.ndjson", `{"url":"a"}`+"\n"+`{"url":"b"}`+"\n")
		im, term := openImport(t, file, 0, serve)
		if err := im.run(t.Context()); err != nil || im.sum.Accepted != 2 || im.sum.Refused != 0 ||
			len(calls) != 4 {
			t.Errorf("%v, after %d calls %+v", err, len(calls), im.sum)
		}
		if waited := calls[1].Sub(calls[0]); waited != 7*time.Second {
			t.Errorf("retried after %s, but Retry-After was 7 s", waited)
		}
		cmdtest.Contains(t, term.Stderr.String(), "the database cannot commit")
	})
}

// TestImportNamesFewCanceled imports lines whose callbacks are all canceled: the first ones are printed, and
// the summary counts all.
func TestImportNamesFewCanceled(t *testing.T) {
	t.Parallel()
	im, term := openImport(t, importLines(t, 1500), 0, func(w http.ResponseWriter, r *http.Request) {
		answerAll(t, w, len(batchOf(t, r)), `{"status":200,"callback":{"id":"cb_1","state":"canceled"}}`)
	})
	if err := im.run(t.Context()); err != nil || im.sum.Canceled != 1500 || im.sum.Replayed != 1500 {
		t.Errorf("%v, %+v", err, im.sum)
	}
	if named := strings.Count(term.Stderr.String(), "is canceled: it is not sent"); named != 20 {
		t.Errorf("%d callbacks are printed:\n%s", named, term.Stderr.String())
	}
}

// TestImportRate interrupts an import with a rate. The checkpoint has exactly the accepted lines.
func TestImportRate(t *testing.T) {
	t.Parallel()
	accept := func(w http.ResponseWriter, r *http.Request) {
		answerAll(t, w, len(batchOf(t, r)), resultAccepted)
	}
	synctest.Test(t, func(t *testing.T) {
		im, _ := openImport(t, importLines(t, 1000), 100, accept)
		ctx, cancel := context.WithTimeout(t.Context(), 600*time.Millisecond)
		defer cancel()
		if err := im.run(ctx); err == nil || im.sum.Accepted != 75 {
			t.Errorf("%v, %+v", err, im.sum)
		}
		if done := im.checkpoint.done; done.Line != 75 || done.Lines != 75 || done.Finished {
			t.Errorf("the checkpoint is %+v", done)
		}
	})
}
