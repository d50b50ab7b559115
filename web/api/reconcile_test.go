package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestGoldenBooks(t *testing.T) {
	t.Parallel()
	f := newFace(t, &engine{})
	golden(t, f, "reconcile.json", "GET", "/v1/reconcile?from=2026-11-20&to=2026-11-21", "")
	golden(t, f, "reconcile_endpoint.json", "GET", "/v1/reconcile?from=2026-11-20&timezone=Asia/Shanghai&group_by=endpoint", "")
	golden(t, f, "compare.json", "POST", "/v1/reconcile/compare", `{"from":"2026-11-20T16:00:00Z","refs":["o-1","o-2","o-3"]}`)
}

func TestSpansOfBooks(t *testing.T) {
	t.Parallel()
	at := func(text string) int64 {
		t.Helper()
		when, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return when.UnixMilli()
	}
	e := &engine{}
	f := newFace(t, e)
	for query, want := range map[string]store.BooksQuery{
		"from=2026-11-20": {From: at("2026-11-20T00:00:00Z"), To: nowMS + 1},
		"from=2026-11-20&to=2026-11-21&timezone=Asia/Shanghai":           {From: at("2026-11-19T16:00:00Z"), To: at("2026-11-20T16:00:00Z")},
		"from=2026-11-20T08:00:00+08:00&to=2026-11-20T08:00:00%2B08:00":  {From: at("2026-11-20T00:00:00Z"), To: at("2026-11-20T00:00:00Z")},
		"from=2026-03-29&to=2026-03-30&timezone=Europe/Berlin":           {From: at("2026-03-28T23:00:00Z"), To: at("2026-03-29T22:00:00Z")},
		"from=1970-01-01&group_by=topic":                                 {To: nowMS + 1, GroupBy: "topic"},
		"from=2026-11-20&group_by=label:shop":                            {From: at("2026-11-20T00:00:00Z"), To: nowMS + 1, GroupBy: "label:shop"},
		"from=2024-03-01&group_by=day&timezone=UTC&to=2026-11-21":        {From: at("2024-03-01T00:00:00Z"), To: at("2026-11-21T00:00:00Z"), GroupBy: "day"},
		"from=2026-11-21T07:59:59.999Z&timezone=America/Argentina/Salta": {From: nowMS - 1, To: nowMS + 1},
	} {
		f.ask(t, 200, "GET", "/v1/reconcile?"+query, "")
		got := e.given.what.(store.BooksQuery)
		if _, zone, _ := strings.Cut(query, "timezone="); got.Zone == nil || !strings.HasPrefix(zone, got.Zone.String()) && got.Zone != time.UTC {
			t.Errorf("%s: in %v", query, got.Zone)
		}
		if got.Zone = nil; got.MaxGroups == 0 {
			t.Errorf("%s: any number of groups is held in memory", query)
		}
		got.MaxGroups = 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
	if got := f.ask(t, 200, "GET", "/v1/reconcile?from=1970-01-01", ""); got["from"] != "1970-01-01T00:00:00.000Z" {
		t.Errorf("from the first moment: %v", got)
	}
	refuses(t, "GET", "/v1/reconcile?", map[string]string{
		"": "from", "to=2026-11-20": "from", "from=2026-11-22": "from", "from=2026-11-21&to=2026-11-20": "from", "from=yesterday": "from", "from=2026-02-30": "from",
		"from=": "from", "from=2026-11-20&to=now": "to", "from=2026-11-20&timezone=Mars": "timezone", "from=2026-11-20&timezone=Local": "timezone",
		"from=2026-11-20&timezone=../UTC": "timezone", "from=2026-11-20&timezone=": "timezone",
		"from=2024-01-01&group_by=day": "group_by", "from=2026-11-20&x=1": "x", "from=2026-11-20&from=2026-11-21": "from",
	})
}

func TestComparisons(t *testing.T) {
	t.Parallel()
	e := &engine{}
	f := newFace(t, e)
	for body, want := range map[string]comparison{
		`{"from":"2026-11-21T07:00:00Z","to":"2026-11-21T09:00:00Z","refs":["a","商户","a"]}`: {nowMS - 3_600_000, nowMS + 3_600_000, []string{"a", "商户", "a"}, 10_000},
		`{"from":"2026-11-21T07:00:00Z","to":null,"refs":[]}`:                               {nowMS - 3_600_000, nowMS + 1, []string{}, 10_000},
	} {
		f.arrives(t, e, 200, "POST", "/v1/reconcile/compare", body, want)
	}
	const from = `{"from":"2026-11-21T07:00:00Z"`
	refuses(t, "POST", "/v1/reconcile/compare", map[string]string{
		`{"refs":[]}`: "from", `{"from":null,"refs":[]}`: "from", `{"from":"2026-11-21","refs":[]}`: "from", `{"from":"2026-11-21T09:00:00Z","refs":[]}`: "from",
		from + `}`: "refs", from + `,"refs":null}`: "refs", from + `,"refs":["a",1]}`: "refs[1]", from + `,"refs":["a",""]}`: "refs[1]",
		from + `,"refs":["a"` + strings.Repeat(`,"a"`, 500_000) + `]}`: "refs",
	})
	wantProblem(t, f.do("POST", "/v1/reconcile/compare", ""), 400, "bad_json")
}
