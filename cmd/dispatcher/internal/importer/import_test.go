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
)

// program has the commands of this package.
var program = cmdtest.Program(func() any {
	return &struct {
		Import Command `cmd:""`
	}{}
})

func TestMain(m *testing.M) { program.RunTests(m) }

func TestTranscripts(t *testing.T) { program.Transcripts(t, "DISPATCHER_KEY=k") }

// importLines writes a file of callbacks that stay scheduled.
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

// importing runs the command against a server, which must end with the code, and returns the summary.
func importing(t *testing.T, r *apptest.Running, code int, path string,
	args ...string) (sum summary, said string) {
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

// Resuming skips what is in the books; what was accepted after the last entry is a replay, not a second
// callback.
func TestImportGoesOn(t *testing.T) {
	t.Parallel()
	r := apptest.Start(t, apptest.Settings(t))
	path := importLines(t, 2500)
	if sum, said := importing(t, r, console.ExitOK, path); sum.Accepted != 2500 {
		t.Fatalf("%+v, %s", sum, said)
	}
	content, err := os.ReadFile(path + ".progress")
	if err != nil {
		t.Fatal(err)
	}
	var mark waymark
	if err := json.Unmarshal(content, &mark); err != nil || mark.Line != 2500 || !mark.Finished {
		t.Fatalf("%+v, %v", mark, err)
	}
	if sum, _ := importing(t, r, console.ExitOK, path, "--resume"); sum.Lines != 0 || sum.Skipped != 2500 {
		t.Errorf("resume of all that is done: %+v", sum)
	}
	// As a kill leaves it: accepted, and not in the books.
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
	// An edited file is another one.
	if err := os.WriteFile(path, append(text, []byte("{}\n")...), 0o600); err != nil {
		t.Fatal(err)
	}
	_, said := importing(t, r, console.ExitUsage, path, "--resume")
	cmdtest.Says(t, said, "was changed since")
}

// openImport is an import of a file that has not begun, at a server without a wire.
func openImport(t *testing.T, path string, rate float64,
	server http.HandlerFunc) (*importer, *cmdtest.Terminal) {
	t.Helper()
	term := program.Terminal()
	cl, err := remote.New(&term.Console, remote.Flags{Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	cl.HTTP.Transport = cmdtest.InProcess{Handler: server}
	source, err := OpenSource(&term.Console, path)
	if err != nil {
		t.Fatal(err)
	}
	books, err := openBooks(&term.Console, source, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		source.Close()
		if err := books.close(); err != nil {
			t.Error(err)
		}
	})
	bar := NewBar(&term.Console, source.Lines, 0)
	return &importer{c: &term.Console, cl: cl, source: source, books: books, rate: rate, bar: bar}, term
}

// batchOf reads the addresses of a batch, and answerAll gives each of them the same result.
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

func answerAll(t *testing.T, w http.ResponseWriter, n int, result string) {
	t.Helper()
	w.WriteHeader(http.StatusMultiStatus)
	cmdtest.Respond(t, w, `{"results":[`+strings.Repeat(result+",", n-1)+result+`]}`)
}

const resultAccepted = `{"status":202,"callback":{}}`

// A server that cannot take a batch is asked again, as late as it says, and a batch that it cannot read is
// halved.
func TestImportAsksAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Time
		serve := func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, time.Now())
			urls := batchOf(t, r)
			switch len(asked) {
			case 1:
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(http.StatusServiceUnavailable)
				cmdtest.Respond(t, w,
					`{"title":"Service Unavailable","status":503,"detail":"the database cannot commit; try again later"}`)
			case 2:
				panic(http.ErrAbortHandler) // the connection breaks
			case 3:
				answerAll(t, w, len(urls),
					`{"status":409,"problem":{"status":409,"code":"idempotency_in_progress"}}`)
			default:
				answerAll(t, w, len(urls), resultAccepted)
			}
		}
		im, term := openImport(t, cmdtest.WriteFile(t, "a.ndjson", `{"url":"a"}`+"\n"+`{"url":"b"}`+"\n"), 0,
			serve)
		if err := im.run(t.Context()); err != nil || im.sum.Accepted != 2 || im.sum.Refused != 0 ||
			len(asked) != 4 {
			t.Errorf("%v, after %d calls %+v", err, len(asked), im.sum)
		}
		if waited := asked[1].Sub(asked[0]); waited != 7*time.Second {
			t.Errorf("it asked again after %s although the server said 7 s", waited)
		}
		cmdtest.Says(t, term.Stderr.String(), "the database cannot commit")
	})
}

// An import keeps to its rate. Interrupted in the middle it says so, and the books are right.
func TestImportKeepsToItsRate(t *testing.T) {
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
		if done := im.books.done; done.Line != 75 || done.Lines != 75 || done.Finished {
			t.Errorf("the books say %+v", done)
		}
	})
}
