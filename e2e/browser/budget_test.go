package browser

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/procfs"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

const (
	// pageCost limits the CPU time of one page, of the server and the database together, in multiples of the
	// plain list with few callbacks. A filtered list without an index reads 2,000 more rows than it shows.
	pageCost = 6
	// pageMost bounds that CPU time absolutely.
	pageMost = 100 * time.Millisecond
	// baseLeast is the lowest plausible cost of the plain list. Below it, the measurement has failed.
	baseLeast = 500 * time.Microsecond
	// fewRows is the number of callbacks for the plain list.
	fewRows = 200
	// pageLoads is how often each page is loaded for a measurement.
	pageLoads = 50
)

// A viewer loads pages over HTTP, without a browser.
type viewer struct {
	*http.Client
	base string
}

// newViewer signs in.
func newViewer(t *testing.T, base string) viewer {
	t.Helper()
	jar, err := cookiejar.New(nil)
	harness.Check(t, err)
	v := viewer{&http.Client{Jar: jar, Timeout: time.Minute}, base}
	resp, err := v.PostForm(base+"/ui/sign-in", url.Values{"key": {harness.AdminKey}})
	harness.Check(t, err)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || strings.Contains(resp.Request.URL.Path, "sign-in") {
		t.Fatalf("signing in leads to %s with %d", resp.Request.URL, resp.StatusCode)
	}
	return v
}

// page loads a page.
func (v viewer) page(t *testing.T, path string) string {
	t.Helper()
	resp, err := v.Get(v.base + path)
	harness.Check(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s returned %d, %v: %.300s", path, resp.StatusCode, err, body)
	}
	return string(body)
}

// A meter measures the CPU time of pages.
type meter struct {
	viewer
	t *testing.T
	p *harness.Process
	// databases: the PostgreSQL processes of these tests count too. SQLite has none.
	databases bool
	// idle is the CPU time per second without any page.
	idle usage
}

// usage is CPU time.
type usage struct{ server, database time.Duration }

func (u usage) sum() time.Duration { return u.server + u.database }

// newMeter signs in, and measures the idle usage of the process, which is subtracted later.
func newMeter(t *testing.T, p *harness.Process, databases bool) *meter {
	t.Helper()
	m := &meter{viewer: newViewer(t, p.Base), t: t, p: p, databases: databases}
	const rest = 2 * time.Second
	m.idle = m.during(1/rest.Seconds(), func() { <-time.NewTimer(rest).C })
	return m
}

// used returns the CPU time of the process and the databases so far.
func (m *meter) used() (u usage) {
	m.t.Helper()
	procs, err := procfs.Family()
	harness.Check(m.t, err)
	for _, proc := range procs {
		used := time.Duration(proc.Seconds * float64(time.Second))
		switch {
		case proc.PID == m.p.Cmd.Process.Pid:
			u.server = used
		case m.databases && proc.Name == "postgres":
			u.database += used
		}
	}
	return u
}

// during returns a part of the CPU time that happen takes, without the idle usage.
func (m *meter) during(part float64, happen func()) usage {
	m.t.Helper()
	before, began := m.used(), time.Now()
	happen()
	after, seconds := m.used(), time.Since(began).Seconds()
	of := func(before, after, idle time.Duration) time.Duration {
		return time.Duration(part * max(0, float64(after-before)-seconds*float64(idle)))
	}
	return usage{
		server:   of(before.server, after.server, m.idle.server),
		database: of(before.database, after.database, m.idle.database),
	}
}

// cost returns the CPU time of one load of a page. It repeats the measurement up to three times while the
// result is above the limit, and returns the lowest result. Other processes can only increase it, through the
// CPU caches.
func (m *meter) cost(path string, limit time.Duration) (least usage) {
	m.t.Helper()
	m.page(m.t, path) // fills the caches
	for try := range 3 {
		cost := m.during(1.0/pageLoads, func() {
			for range pageLoads {
				m.page(m.t, path)
			}
		})
		if try == 0 || cost.sum() < least.sum() {
			least = cost
		}
		if least.sum() <= limit {
			break
		}
	}
	return least
}

// The cost of a page does not depend on the amount of data. With a million callbacks, a tenth of them dead,
// no page takes more CPU time of the server and the database than pageCost times the plain list with fewRows,
// nor more than pageMost. A page with a full table scan would take a hundred times that. make test-long runs
// the full size, make test-full less.
func TestBrowserPagesCostLittle(t *testing.T) {
	t.Parallel() // the test measures CPU time, not elapsed time
	harness.OnEach(t, harness.BothEnds, costPages)
}

func costPages(tr *harness.Trial) {
	t, rows := tr.T, 200_000 // callbacks in SQL
	if testserver.Long() {
		rows = 1_000_000
	}
	databases := tr.Backend.Postgres != ""
	r := harness.NewReceiver(t, harness.Always(harness.Reply{Body: "success"}))
	few := tr.Serve()
	tr.AcceptMany(fewRows, func(i int) harness.Submission {
		ref := fmt.Sprint("few-", i)
		return harness.Submission{"url": r.URL, "ref": ref, "payload": harness.Payload(ref), "delay": "2d"}
	})
	awaitIndexed(t, newViewer(t, few.Base))
	base := newMeter(t, few, databases).cost("/ui/callbacks", 0).sum()
	if base < baseLeast {
		t.Fatalf("the plain list of %d callbacks costs %.2f ms of CPU: the measurement failed", fewRows,
			ms(base))
	}
	limit := min(pageCost*base, pageMost)
	tr.Seed(few, harness.Seeding{N: rows, Lanes: 100, Shape: func(lane int, ref string) harness.Submission {
		return harness.Submission{
			"url": r.URL + "/" + ref, "ref": ref, "lane": fmt.Sprint("merchant-", lane),
			"topic":   []string{"payment.succeeded", "refund.succeeded"}[lane%2],
			"payload": harness.Payload(ref), "labels": harness.Submission{"channel": "alipay"},
			"lock_key": ref,
		}
	}})
	// Of every ten callbacks six have succeeded and one is dead, for one of four reasons.
	const seeded = `FROM requests WHERE requests.project = callbacks.project AND requests.id = callbacks.id
		AND requests.ref LIKE 'seed-%'`
	number := `CAST(substr(requests.ref, 6) AS BIGINT)`
	ended := time.Now().UnixMilli()
	tr.Execute(fmt.Sprintf(`UPDATE callbacks SET state = 'succeeded', finished_at = %d, attempt_count = 1,
		last_class = 'ok', last_status = 200 %s AND %s %% 10 < 6`, ended, seeded, number))
	tr.Execute(fmt.Sprintf(`UPDATE callbacks SET state = 'dead', reason = 'exhausted', finished_at = %d,
		attempt_count = 10, last_class = CASE %s %% 40 WHEN 6 THEN 'http_5xx' WHEN 16 THEN 'http_4xx'
		WHEN 26 THEN 'timeout_headers' ELSE 'connect_refused' END,
		last_status = CASE WHEN %s %% 40 = 6 THEN 503 ELSE 0 END %s AND %s %% 10 = 6`,
		ended, number, number, seeded, number))
	tr.Execute(`ANALYZE`)
	p := tr.Serve()
	v := newViewer(t, p.Base)
	awaitIndexed(t, v)
	paths := slices.Concat(linesOf(t, "menu.txt"), linesOf(t, "costs.txt"))
	ids := regexp.MustCompile(`/ui/callbacks/(cb_\w+)"`).FindStringSubmatch(
		v.page(t, "/ui/callbacks?state=dead"))
	if ids == nil {
		t.Fatal("no dead callback is listed")
	}
	paths = append(paths, "/ui/callbacks/"+ids[1])
	next := "/ui/callbacks"
	for range 3 { // pages further down
		found := regexp.MustCompile(`href="([^"]+)" rel="next"`).FindStringSubmatch(v.page(t, next))
		if found == nil {
			t.Fatalf("%s has no next page", next)
		}
		next = strings.ReplaceAll(found[1], "&amp;", "&")
	}
	paths = append(paths, next)

	m := newMeter(t, p, databases)
	var lines []string
	var all, worst time.Duration
	for _, path := range paths {
		cost := m.cost(path, limit)
		all, worst = all+cost.sum(), max(worst, cost.sum())
		lines = append(lines, fmt.Sprintf("%7.2f ms, database %7.2f ms: %.80s", ms(cost.server),
			ms(cost.database), path))
		if cost.sum() > limit {
			t.Errorf("%s takes %.2f ms of CPU and the database %.2f; at most %.2f together: %d times the "+
				"plain list of %d callbacks, and never more than %s", path, ms(cost.server),
				ms(cost.database), ms(limit), pageCost, fewRows, pageMost)
		}
	}
	t.Logf("%s, %d callbacks: a page costs %.2f ms on average, %.2f ms at most, and may cost %.2f ms:\n%s",
		tr.Backend.Name, rows, ms(all)/float64(len(paths)), ms(worst), ms(limit), strings.Join(lines, "\n"))
}

// awaitIndexed waits until the index has all open callbacks, and the server is idle.
func awaitIndexed(t *testing.T, v viewer) {
	t.Helper()
	harness.Eventually(t, 5*time.Minute, "the index has all open callbacks", func() error {
		if text := v.page(t, "/ui/system"); strings.Contains(text, `class="banner warn"`) {
			return errors.New("the page still has a warning")
		}
		return nil
	})
}

// ms converts a duration to milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
