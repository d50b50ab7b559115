// Package browser tests the admin pages in a real Chromium with the built binary: the work of an operator,
// live updates, and the rules of layout, contrast and keyboard for every page.
package browser

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// Each test uses its own browser context, like a private window: no session and no stored data. Every problem
// that the browser reports fails the test, on any page: an exception, an error in the console, a violation of
// the content policy, a dialog.

// pageTime bounds every wait for a page. It is long because many tests share few cores, and is no performance
// goal.
const pageTime = 30 * time.Second

// chromiumNames are the possible programs. tools/setup.sh has the same list.
var chromiumNames = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// chromium starts the one browser that all parallel tests share.
var chromium = sync.OnceValues(func() (context.Context, error) {
	program := ""
	for _, name := range chromiumNames {
		if found, err := exec.LookPath(name); err == nil {
			program = found
			break
		}
	}
	if program == "" {
		return nil, fmt.Errorf("none of %s is installed; tools/setup.sh installs it",
			strings.Join(chromiumNames, ", "))
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 900),
		chromedp.WSURLReadTimeout(harness.StartTime),
		// The profile and the temporary files are in the directory of the binary, which is removed even after
		// a crash of the browser.
		chromedp.UserDataDir(filepath.Join(harness.WorkDir, "chromium")),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("lang", "en-US"),
		// Neither the pages nor the browser may load anything from other hosts.
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		// A proxy of the machine must not apply to the loopback.
		chromedp.Flag("no-proxy-server", true),
		chromedp.Env("TZ=UTC", "LANG=en_US.UTF-8", "TMPDIR="+harness.WorkDir))
	allocated, free := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocated) // Cancel below ends it, and also waits
	if err := chromedp.Do(ctx); err != nil {
		free()
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	endChromium = func() error {
		bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		defer free()
		if err := chromedp.Cancel(bounded); err != nil {
			fmt.Printf("end %s: %v\n", program, err)
		}
		return nil
	}
	return ctx, nil
})

// endChromium ends the browser, so that it does not outlive the tests.
var endChromium = func() error { return nil }

// A tab is one page in its own private window.
type tab struct {
	testing.TB
	ctx context.Context
	// base is the server's address, without a path.
	base string
	// clicks and presses count what the user did with a mouse and on the keyboard.
	clicks, presses int

	mu      sync.Mutex
	wrong   []string
	allowed []*regexp.Regexp
	loads   map[network.RequestID]*fetched
	order   []network.RequestID
}

// A fetched is one request of a page.
type fetched struct {
	url, kind string
	status    int64
	bytes     int64 // of the decoded body
	over      bool
}

// newTab opens an empty page.
func newTab(tb testing.TB, base string) *tab {
	tb.Helper()
	started, err := chromium()
	harness.Check(tb, err)
	t := &tab{TB: tb, base: base}
	return t.pageIn(started, chromedp.WithNewBrowserContext())
}

// pageIn opens a page, and listens to its events. It copies what the tab allows. With the tab's own context
// as the parent, the page is in the same window and has the same session.
func (t *tab) pageIn(parent context.Context, options ...chromedp.ContextOption) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(parent, options...)
	t.Cleanup(cancel)
	t = &tab{TB: t.TB, ctx: ctx, base: t.base, allowed: t.allowed, loads: map[network.RequestID]*fetched{}}
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("open a page: %v", err)
	}
	if err := chromedp.Listen(ctx, t.onEvent); err != nil {
		t.Fatalf("listen to a page: %v", err)
	}
	call(t, audits.Enable, cdp.Empty{})
	t.size(1280)
	t.Cleanup(t.judge)
	return t
}

// onEvent records an event of a page. It runs on the browser's event loop and must not call the browser.
func (t *tab) onEvent(event any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		t.wrong = append(t.wrong, "exception: "+text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeAssert ||
			e.Type == runtime.ConsoleAPICalledTypeWarning {
			var words []string
			for _, arg := range e.Args {
				words = append(words, string(arg.Value)+arg.Description)
			}
			t.wrong = append(t.wrong, fmt.Sprintf("console %s: %s", e.Type, strings.Join(words, " ")))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			t.wrong = append(t.wrong, fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *audits.EventIssueAdded:
		t.wrong = append(t.wrong, fmt.Sprintf("issue: %s %s", e.Issue.Code, issueText(e.Issue)))
	case *page.EventJavascriptDialogOpening:
		t.wrong = append(t.wrong, fmt.Sprintf("dialog: %s %q", e.Type, e.Message))
		// The page stands still while a dialog is open.
		go chromedp.Call(t.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
	default:
		t.onNetworkEvent(event)
	}
}

// onNetworkEvent records the requests of a page.
func (t *tab) onNetworkEvent(event any) {
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if strings.HasPrefix(e.Request.URL, "data:") {
			return
		}
		if t.loads[e.RequestID] == nil {
			t.order = append(t.order, e.RequestID)
		}
		t.loads[e.RequestID] = &fetched{url: e.Request.URL, kind: string(e.Type)}
	case *network.EventResponseReceived:
		if l := t.loads[e.RequestID]; l != nil {
			l.status, l.kind = e.Response.Status, string(e.Type)
		}
	case *network.EventDataReceived:
		if l := t.loads[e.RequestID]; l != nil {
			l.bytes += e.DataLength
		}
	case *network.EventLoadingFinished:
		t.over(e.RequestID)
	case *network.EventLoadingFailed: // a closed stream
		t.over(e.RequestID)
	}
}

// over marks a request as finished.
func (t *tab) over(id network.RequestID) {
	if l := t.loads[id]; l != nil {
		l.over = true
	}
}

// issueText returns the useful details of an issue.
func issueText(issue *audits.InspectorIssue) string {
	switch d := issue.Details; {
	case d == nil:
	case d.ContentSecurityPolicyIssueDetails != nil:
		c := d.ContentSecurityPolicyIssueDetails
		return fmt.Sprintf("%s %s %s", c.ContentSecurityPolicyViolationType, c.ViolatedDirective,
			c.BlockedURL)
	case d.GenericIssueDetails != nil:
		return fmt.Sprintf("%s %s", d.GenericIssueDetails.ErrorType,
			d.GenericIssueDetails.ViolatingNodeAttribute)
	}
	return ""
}

// allow allows problems that the test causes itself.
func (t *tab) allow(patterns ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range patterns {
		t.allowed = append(t.allowed, regexp.MustCompile(p))
	}
}

// problems returns the problems that the browser has reported so far, without the allowed ones, and clears
// them.
func (t *tab) problems() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := slices.DeleteFunc(t.wrong, func(text string) bool {
		return slices.ContainsFunc(t.allowed, func(p *regexp.Regexp) bool { return p.MatchString(text) })
	})
	t.wrong = nil
	return left
}

// judge fails the test for each problem that the browser has reported.
func (t *tab) judge() {
	for _, text := range t.problems() {
		t.Errorf("the browser reports: %s", text)
	}
	if t.Failed() && t.ctx.Err() == nil {
		t.Logf("the page at the end: %s\n%.1500s", t.where(), t.pageText())
	}
}

// forget clears the list of requests.
func (t *tab) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loads, t.order = map[network.RequestID]*fetched{}, nil
}

// loaded returns the requests since forget, in order.
func (t *tab) loaded() []fetched {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]fetched, len(t.order))
	for i, id := range t.order {
		all[i] = *t.loads[id]
	}
	return all
}

// eventually waits up to pageTime until a condition holds.
func (t *tab) eventually(what string, cond func() error) {
	t.Helper()
	harness.Eventually(t, pageTime, what, cond)
}

// bounded returns the tab's context with the timeout pageTime.
func (t *tab) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.ctx, pageTime)
}

// call sends a command to the browser that must succeed.
func call[P, R any](t *tab, command cdp.Command[P, R], params P) R {
	t.Helper()
	ctx, cancel := t.bounded()
	defer cancel()
	result, err := chromedp.Call(ctx, command, params)
	if err != nil {
		t.Fatalf("%s: %v", command.Method, err)
	}
	return result
}

// evaluate runs an expression in the page. It fails while one page replaces another, as any access does.
func evaluate[T any](t *tab, expression string) (T, error) {
	ctx, cancel := t.bounded()
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		err = fmt.Errorf("%.120s: %w", expression, err)
	}
	return v, err
}

// ask is evaluate that is repeated until it succeeds.
func ask[T any](t *tab, expression string) (v T) {
	t.Helper()
	t.eventually("the page evaluates", func() (err error) {
		v, err = evaluate[T](t, expression)
		return err
	})
	return v
}

// open loads a page of the server and waits until it is loaded. It returns the status of the response.
func (t *tab) open(path string) int64 {
	t.Helper()
	ctx, cancel := t.bounded()
	defer cancel()
	response, err := chromedp.RunResponse(ctx, chromedp.Navigate(t.base+path))
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	if response == nil {
		t.Fatal(errors.New("open " + path + ": no response"))
	}
	return response.Status
}

// signIn signs in with a key through the form.
func (t *tab) signIn(key string) {
	t.Helper()
	t.open("/ui/sign-in")
	t.fill("#key", key)
	t.click("button", "Sign in")
	t.see("h1", "Overview")
}

// streams waits until the page's stream of updates is open.
func (t *tab) streams() {
	t.Helper()
	t.eventually("the page gets updates", func() error {
		for _, l := range t.loaded() {
			if l.kind == "EventSource" && l.status == http.StatusOK && !l.over {
				return nil
			}
		}
		return errors.New("no stream is open")
	})
}
