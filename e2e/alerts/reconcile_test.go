package alerts

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// TestReconciliation loses an order of yesterday. The daily run finds it, an operational event and an alert
// report it, and the day is good once the order was sent.
func TestReconciliation(t *testing.T) {
	t.Parallel()
	tr := harness.NewTrial(t, "reconcile")
	tr.UseBackend(harness.NewBackend(tr, harness.SQLiteEmbedded))
	tr.Receiver.Lean = false
	p := tr.Serve()
	p.Create("/v1/endpoints", harness.Submission{
		"url": tr.Receiver.URL + "/events", "topics": []string{"dispatcher.reconcile.*"},
	})
	p.Create("/v1/alerts", harness.Submission{
		"name": "lab", "when": harness.Submission{"kind": "reconcile"},
		"sink": harness.Submission{"type": "webhook", "url": tr.Receiver.URL + "/alert"},
	})
	send := func(ref string) {
		_, err := p.Submit(harness.Submission{
			"url": tr.Receiver.URL + "/plain", "topic": "paid", "ref": ref, "payload": harness.Payload(ref),
		})
		tr.Check(err)
	}
	// The next whole minute that is far enough away to be set before it begins.
	run := time.Now().UTC().Add(10 * time.Second).Truncate(time.Minute).Add(time.Minute)
	day := run.AddDate(0, 0, -1).Format(time.DateOnly)
	_, err := p.PatchProject(tr.Context(), "default", client.ProjectFields{Reconcile: client.Set(
		client.ReconcileSettings{At: run.Format("15:04"), Timezone: "UTC", ExpectList: true})})
	tr.Check(err)
	for range 2 { // a list that is sent twice counts once
		list, err := p.Expect(tr.Context(), client.ExpectedList{Date: day, Items: []client.RefTopic{
			{Ref: "sent", Topic: "paid"}, {Ref: "lost", Topic: "paid"}, {Ref: "lost", Topic: "paid"},
		}})
		tr.Check(err)
		if list.Items != 2 {
			tr.Errorf("the list has %d items, want 2", list.Items)
		}
	}
	send("sent")

	report := client.ReconcileReportPage{}
	tr.Eventually(time.Until(run.Add(time.Minute)), "the daily run", func() (err error) {
		report, err = p.ReconcileReport(tr.Context(), day, "", "", 0)
		return err
	})
	if report.Matched != 1 || report.Missing != 1 || len(report.Data) != 1 ||
		report.Data[0].Ref != "lost" || len(report.Wrong) != 1 || report.Wrong[0] != client.ReconcileMissing {
		tr.Errorf("the report is %+v", report)
	}
	answer, err := p.Call(tr.Context(), http.MethodGet, "/v1/reconcile/reports/"+day+"?format=csv", nil, nil)
	tr.Check(err)
	const file = "kind,ref,topic,state,callback_id,callbacks\nmissing,lost,paid,,,\n"
	if string(answer.Body) != file {
		tr.Errorf("the CSV is %q, want %q", answer.Body, file)
	}
	arrives(tr, "/events", `"wrong":["missing"]`)
	arrives(tr, "/alert", day+": Daily reconciliation: 1 of the expected callbacks")

	send("lost")
	again, err := p.RunReconcile(tr.Context(), day, "")
	tr.Check(err)
	if again.Matched != 2 || len(again.Wrong) != 0 {
		tr.Errorf("after the order was sent, the report is %+v", again)
	}
	arrives(tr, "/alert", `"state":"resolved"`)
}

// arrives waits until the last request to a path has a text.
func arrives(tr *harness.Trial, path, text string) {
	tr.Helper()
	tr.Eventually(resolveTime, text+" arrives at "+path, func() error {
		last := "no request"
		for _, a := range tr.Receiver.All() {
			if a.Path == path {
				last = string(a.Body)
			}
		}
		if !strings.Contains(last, text) {
			return fmt.Errorf("the last one is %s", last)
		}
		return nil
	})
}
