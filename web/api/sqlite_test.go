package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
)

// newSQLiteFace returns the API over a new SQLite database with n callbacks; callback i was created at i ms past the
// hour, is due in reverse, and has i modulo 2 as its reference.
func newSQLiteFace(t *testing.T, n int) face {
	t.Helper()
	db, err := sqlstore.Open(context.Background(), sqlstore.Options{URL: "sqlite:" + filepath.Join(t.TempDir(), "d.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := sqlstore.Migrate(context.Background(), db); err != nil {
		t.Fatal(err)
	}
	drafts := make([]store.Draft, n)
	for i := range drafts {
		created := int64(nowMS + i)
		drafts[i] = store.Draft{Body: fmt.Appendf(nil, `{ "n" : %d }`, i), Callback: store.Callback{
			ID: idOf(i), Project: store.DefaultProject, Kind: store.Notify, URL: "https://shop.example/notify", Method: "POST",
			Topic: "payment.succeeded", Ref: fmt.Sprint("order-", i%2), Lane: "https://shop.example:443",
			Labels: map[string]string{"n": fmt.Sprint(i), "even": fmt.Sprint(i%2 == 0)}, Policy: store.Policy{Name: "payment", Tiers: schedule.Payment()},
			Success: store.Success{Name: "http-2xx"}, Signer: "standard-v1", State: store.Scheduled, Trigger: store.BySchedule,
			DueAt: nowMS + 1000*int64(n-i), FirstDueAt: created, CreatedAt: created, UpdatedAt: created, ContentType: "application/json",
		}}
	}
	accepted, err := db.Accept(context.Background(), drafts)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range accepted {
		if a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	o := optionsOf(&engine{})
	o.Reads, o.EndpointReads, o.ProjectReads = db, db, db
	return newFaceOf(t, o)
}

// idOf is the id of callback i. Its first characters are when it was created, as they always are.
func idOf(i int) string {
	var id ulid.ULID
	if err := id.SetTime(uint64(nowMS + i)); err != nil {
		panic(err)
	}
	return id.String()
}

// walk follows next_cursor to the end and returns the ids of each page.
func walk(t *testing.T, f face, query string) (pages [][]string) {
	t.Helper()
	cursor := ""
	for len(pages) < 100 {
		q := query
		if cursor != "" {
			q += "&cursor=" + url.QueryEscape(cursor)
		}
		rec := f.do("GET", "/v1/callbacks?"+q, "")
		var page struct {
			Data []struct{ ID string }
			Next *string `json:"next_cursor"`
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &page); err != nil || rec.Code != 200 {
			t.Fatalf("%s: %d %s", q, rec.Code, rec.Body)
		}
		ids := []string{}
		for _, c := range page.Data {
			ids = append(ids, strings.TrimPrefix(c.ID, store.CallbackPrefix))
		}
		pages = append(pages, ids)
		if page.Next == nil {
			return pages
		}
		cursor = *page.Next
	}
	t.Fatalf("%s: the pages do not end", query)
	return nil
}

func TestPagesThroughSQLite(t *testing.T) {
	t.Parallel()
	const n = 7
	f := newSQLiteFace(t, n)
	var oldest []string
	for i := range n {
		oldest = append(oldest, idOf(i))
	}
	newest := slices.Clone(oldest)
	slices.Reverse(newest)
	for _, c := range []struct {
		query string
		want  [][]string
	}{
		{"limit=3", [][]string{newest[:3], newest[3:6], newest[6:]}},
		{"limit=7", [][]string{newest}},
		{"", [][]string{newest}},
		{"limit=4&order=due", [][]string{newest[:4], newest[4:]}},
		{"limit=2&ref=order-0", [][]string{{idOf(6), idOf(4)}, {idOf(2), idOf(0)}}},
		{"label.n=5", [][]string{{idOf(5)}}},
		{"label.n=5&ref=order-0", [][]string{{}}},
		{"state=scheduled&limit=500&topic=payment.succeeded&kind=notify", [][]string{newest}},
		{"state=dead&state=succeeded", [][]string{{}}},
		{"overdue=true", [][]string{{}}},
		{"from=2026-11-21T08:00:00.002Z&to=2026-11-21T08:00:00.004Z", [][]string{{idOf(3), idOf(2)}}},
	} {
		if diff := cmp.Diff(c.want, walk(t, f, c.query)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.query, diff)
		}
	}
}

// TestRareLabelsAreFoundAtOnce: a label that only the oldest of many callbacks has is on the first page.
func TestRareLabelsAreFoundAtOnce(t *testing.T) {
	t.Parallel()
	const n = 120
	f := newSQLiteFace(t, n)
	if diff := cmp.Diff([][]string{{idOf(0)}}, walk(t, f, "label.n=0")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	pages := walk(t, f, "label.even=true&limit=16")
	var ids []string
	for i, page := range pages {
		if len(page) != 16 && i < len(pages)-1 {
			t.Errorf("page %d has %d", i, len(page))
		}
		ids = append(ids, page...)
	}
	if slices.Sort(ids); len(slices.Compact(ids)) != n/2 {
		t.Errorf("%d callbacks with the label, want %d", len(ids), n/2)
	}
}

func TestReadsThroughSQLite(t *testing.T) {
	t.Parallel()
	f := newSQLiteFace(t, 2)
	one, unknown := "/v1/callbacks/cb_"+idOf(1), "/v1/callbacks/cb_"+idOf(9)
	if rec := f.do("GET", one, ""); rec.Code != 200 || !strings.Contains(rec.Body.String(), `"ref":"order-1"`) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if rec := f.do("GET", one+"/payload", ""); rec.Code != 200 || rec.Body.String() != `{ "n" : 1 }` {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if rec := f.do("GET", one+"/attempts", ""); rec.Code != 200 || rec.Body.String() != `{"data":[]}` {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	for _, path := range []string{"", "/payload", "/attempts"} {
		wantProblem(t, f.do("GET", unknown+path, ""), 404, "not_found")
	}
	if rec := f.do("GET", "/v1/stats", ""); rec.Code != 200 || !strings.Contains(rec.Body.String(), `"scheduled":2`) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if rec := f.do("GET", "/v1/audit", ""); rec.Code != 200 {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
