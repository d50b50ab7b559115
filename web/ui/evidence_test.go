package ui

import (
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The texts of the API are those of the pages. Times are in UTC, and data is as it came.
func TestReportTexts(t *testing.T) {
	t.Parallel()
	texts, err := ReportTexts()
	if err != nil {
		t.Fatal(err)
	}
	if len(texts) != 1 || texts["zh-CN"] == nil {
		t.Fatalf("there are %d languages", len(texts))
	}
	text := string(texts["zh-CN"](&control.Report{
		At: 1_700_000_000_000, FirstDue: 1_700_000_000_000, Total: 1,
		Callback: store.Callback{Ref: "<b>&amp;1", State: store.Scheduled, URL: "https://a.example/?t=hidden"},
		Attempts: []store.Attempt{{Number: 1, Status: 500, Class: store.ClassHTTP5xx,
			Outcome: store.AttemptFailed, ResponseBody: "<i>boom</i>"}},
	}))
	for _, want := range []string{
		"报告生成时间：2023-11-14 22:13:20.000 +00:00\n", "业务单号：<b>&amp;1\n", "应答状态码：500\n",
		"<i>boom</i>\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "hidden") {
		t.Errorf("the report shows the query:\n%s", text)
	}
}
