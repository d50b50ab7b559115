package relay

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// Limits of a row, as documented.
const (
	maxRequest = 512 << 10
	maxBody    = 256 << 10
)

// order makes the row of an order whose request has further fields.
func (o *outbox) order(ref string, more harness.Submission) row {
	o.tr.Helper()
	r := o.tr.orderRow("plain", ref, false)
	var request harness.Submission
	o.tr.Check(json.Unmarshal([]byte(r.request), &request))
	for name, value := range more {
		request[name] = value
	}
	text, err := json.Marshal(request)
	o.tr.Check(err)
	r.request = string(text)
	return r
}

// mistakes has rows that the dispatcher must refuse, among others. Each has its code, and passes a retry once
// the cause is gone.
func mistakes(tr *trial) {
	o := tr.src
	bad := map[string][]row{
		"not_json":     {{request: `{"url":`}, {request: ``}, {request: `{} {}`}},
		"unknown_kind": {{kind: "cancel", request: `{}`}},
		"too_large": {{request: `{"ref":"` + strings.Repeat("x", maxRequest) + `"}`},
			{request: o.order("big", nil).request, body: make([]byte, maxBody+1)}},
		"": {o.order("unknown-field", harness.Submission{"surprise": 1}),
			o.order("no-such-endpoint", harness.Submission{"url": nil, "endpoint": "shop"})},
	}
	n := 0
	for code, rows := range bad {
		for i := range rows {
			rows[i].id = fmt.Sprintf("bad-%s-%d", code, i)
			o.bare(rows[i])
			n++
		}
	}
	o.fill(0, killRows)
	o.settings["keep"] = "0s"
	tr.relay("")
	o.drained(resumedBusy)
	for code, rows := range bad {
		if have := o.refused(code); code != "" && have != len(rows) {
			tr.Errorf("%d rows are refused as %s, want %d", have, code, len(rows))
		}
	}
	if have := o.count(`SELECT count(*) FROM dispatcher_outbox_refused`); have != n {
		tr.Errorf("%d rows are refused, want %d", have, n)
	}
	tr.refusalsListed(o, n)
	tr.retried(o)
	dropped := o.act("drop", harness.Submission{"all": true})
	if dropped.Dropped != n-1 {
		tr.Errorf("drop: %+v, want %d dropped", dropped, n-1)
	}
	tr.conclude(resumedBusy)
}

// refusalsListed waits until the API lists the refused rows.
func (tr *trial) refusalsListed(o *outbox, n int) {
	tr.Helper()
	tr.Eventually(time.Minute, "the API lists the refused rows", func() error {
		s, err := o.status()
		if err == nil && (s.RefusedRows != n || len(s.Refusals) != n) {
			err = fmt.Errorf("it has %d and lists %d of %d", s.RefusedRows, len(s.Refusals), n)
		}
		for _, r := range s.Refusals {
			if err == nil && (r.Code == "" || r.Problem == "" || r.RefusedAt.IsZero()) {
				err = fmt.Errorf("a refusal lacks its cause: %+v", r)
			}
		}
		return err
	})
}

// retried creates the endpoint that a refused row names, and retries this row. It becomes an order.
func (tr *trial) retried(o *outbox) {
	tr.Helper()
	tr.AnyProcess().Create("/v1/endpoints", harness.Submission{"url": tr.Receiver.URL + "/plain/shop",
		"external_id": "shop"})
	id := ""
	s, err := o.status()
	tr.Check(err)
	for _, r := range s.Refusals {
		if strings.Contains(r.Problem, "shop") || strings.Contains(r.Problem, "endpoint") {
			id = r.ID
		}
	}
	act := o.act("retry", harness.Submission{"id": id})
	if id == "" || act.Matched != 1 || act.Accepted != 1 {
		tr.Errorf("retry of %q: %+v, want one accepted row", id, act)
	}
	o.exec(`INSERT INTO orders (id) VALUES ('no-such-endpoint')`)
}

// sameID uses ids again, with the same bytes and with others.
func sameID(tr *trial) {
	o := tr.src
	o.fill(0, page)
	for i := range 10 {
		o.bare(o.plain(i)) // before the first one is accepted, or after it
	}
	tr.relay("")
	o.drained(resumedBusy)
	for i := range 10 {
		o.bare(o.plain(i))
		other := o.plain(10 + i)
		other.request, other.body = o.order("other", nil).request, nil
		o.bare(other)
	}
	// The bytes of the column body count too.
	even := o.plain(20)
	even.body = []byte("other")
	o.bare(even)
	o.drained(resumedBusy)
	if n := o.refused("idempotency_mismatch"); n != 11 {
		tr.Errorf("%d rows are refused as idempotency_mismatch, want 11", n)
	}
	tr.conclude(resumedBusy)
	if tr.result.replayed < 20 {
		tr.Errorf("%d rows were replayed, want 20", tr.result.replayed)
	}
}

// encodings inserts characters of all lengths, bytes of all values, and text that is not UTF-8.
func encodings(tr *trial) {
	o := tr.src
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	bytes := o.order("all-bytes", harness.Submission{"content_type": "application/octet-stream"})
	bytes.request, bytes.body = strings.Replace(bytes.request, `"payload":`, `"labels":`, 1), all
	bytes.request = strings.Replace(bytes.request, `"paid":10000`, `"paid":"10000"`, 1)
	tr.bodies[bytes.id] = all
	wide := o.order("茶 🍵", harness.Submission{"url": tr.Receiver.URL + "/plain/tea"})
	o.commit(bytes, wide)
	if tr.on == mariadb {
		// A MEDIUMBLOB keeps the bytes of a connection in GBK as they are.
		bad := o.order("gbk", nil)
		bad.request = strings.Replace(bad.request, `"ref":"gbk"`, "\"ref\":\"\xd6\xd0\xce\xc4\"", 1)
		o.bare(bad)
	}
	tr.relay("")
	o.drained(resumedBusy)
	if n := o.refused("not_utf8"); tr.on == mariadb && n != 1 {
		tr.Errorf("%d rows are refused as not_utf8, want one", n)
	}
	tr.conclude(resumedBusy)
}

// delays counts delays from the insert, whatever the time zones of the server and of the application.
func delays(tr *trial) {
	o := tr.src
	conn, err := o.db.Conn(tr.Context())
	tr.Check(err)
	defer conn.Close()
	zones := []string{"+08:00", "-05:00", "+00:00"}
	set, now := `SET time_zone = '%s'`, `SELECT seq, CAST(unix_timestamp(created_at) * 1000 AS SIGNED)`
	if tr.on == postgres {
		set, now = `SET TIME ZONE INTERVAL '%s' HOUR TO MINUTE`, `SELECT seq,
			CAST(extract(epoch FROM created_at) * 1000 AS BIGINT)`
	}
	for i, zone := range zones {
		_, err := conn.ExecContext(tr.Context(), fmt.Sprintf(set, zone))
		tr.Check(err)
		tr.Check(tr.on.business(tr.Context(), conn, o.order(fmt.Sprint("late-", i),
			harness.Submission{"delay": "8s"})))
	}
	created := map[int64]int64{}
	tr.Check(judge.Each(tr.Context(), o.db, func(scan func(...any) error) error {
		var seq, ms int64
		err := scan(&seq, &ms)
		created[seq] = ms
		return err
	}, now+` FROM dispatcher_outbox`))
	tr.relay("")
	o.drained(resumedBusy)
	type due struct {
		ref string
		ms  int64
	}
	found := harness.Rows(tr.Trial, func(d *due) []any { return []any{&d.ref, &d.ms} },
		`SELECT ref, first_due_at FROM requests ORDER BY ref`)
	if len(found) != len(zones) || len(created) != len(zones) {
		tr.Fatalf("%d rows became %d callbacks, want %d", len(created), len(found), len(zones))
	}
	for i, d := range found {
		off := time.Duration(d.ms-created[int64(i+1)])*time.Millisecond - 8*time.Second
		if off.Abs() > 100*time.Millisecond {
			tr.Errorf("%s, inserted at %s, is due %s beside its delay", d.ref, zones[i], off)
		}
		tr.Remark("delay of a row inserted at %s: off by %d ms", zones[i], off.Milliseconds())
	}
	tr.conclude(resumedBusy)
}

// clocksApart counts delays from the insert, whatever the clock of the source.
func clocksApart(tr *trial) {
	o := tr.newOutbox("pay", tr.on, tr.on.own(tr))
	tr.src = o
	o.db.SetMaxIdleConns(0) // a connection does not outlive the server
	tr.relay("")
	clock := `SELECT CAST(unix_timestamp() AS SIGNED)`
	if tr.on == postgres {
		clock = `SELECT CAST(extract(epoch FROM now()) AS BIGINT)`
	}
	for i, ahead := range []time.Duration{time.Hour, -time.Hour} {
		tr.Check(o.server.Kill())
		o.server.SetClock(tr, ahead)
		o.server.Start(tr)
		is := time.Until(time.Unix(int64(o.count(clock)), 0))
		if (is - ahead).Abs() > time.Minute {
			tr.Fatalf("the source's clock is ahead by %s, want %s", is, ahead)
		}
		order := fmt.Sprint("late-", i)
		began := time.Now()
		tr.Check(tr.on.business(tr.Context(), o.db, o.order(order, harness.Submission{"delay": "8s"})))
		took := time.Since(began)
		o.drained(backoffLimit)
		due := harness.Rows(tr.Trial, func(ms *int64) []any { return []any{ms} },
			`SELECT first_due_at FROM requests WHERE ref = '`+order+`'`)
		if len(due) != 1 {
			tr.Fatalf("%s has %d callbacks", order, len(due))
		}
		off := time.UnixMilli(due[0]).Sub(began.Add(8 * time.Second))
		if off < -100*time.Millisecond || off > took+100*time.Millisecond {
			tr.Errorf("with a clock that is ahead by %s, a row is due %s beside its delay", ahead, off)
		}
		tr.Remark("delay of a row with a clock that is ahead by %s: off by %d ms", ahead, off.Milliseconds())
	}
	tr.conclude(resumedBusy)
}

// wrongAges has rows that are older than their key lives, and rows from the future.
func wrongAges(tr *trial) {
	o := tr.src
	o.fill(0, 20)
	o.aged(0, 5, -6*24*time.Hour-time.Hour)
	o.aged(5, 10, 25*time.Hour)
	o.aged(10, 15, -6*24*time.Hour+time.Hour)
	o.aged(15, 20, 23*time.Hour)
	tr.relay("")
	o.drained(resumedBusy)
	if old, future := o.refused("too_old"), o.refused("future"); old != 5 || future != 5 {
		tr.Errorf("%d rows are too old and %d from the future, want 5 and 5", old, future)
	}
	// A retry by code does not touch the others.
	if act := o.act("retry", harness.Submission{"code": "too_old"}); act.Matched != 5 || act.Accepted != 5 {
		tr.Errorf("retry of the old rows: %+v", act)
	}
	if act := o.act("retry", harness.Submission{}); act.Matched != 5 || act.Accepted != 5 {
		tr.Errorf("retry of the future rows: %+v", act)
	}
	if n := o.count(`SELECT count(*) FROM dispatcher_outbox_refused`); n > 0 {
		tr.Errorf("%d rows are still refused", n)
	}
	tr.conclude(resumedBusy)
}

// aged changes the age of the orders first to end-1.
func (o *outbox) aged(first, end int, by time.Duration) {
	o.tr.Helper()
	then := fmt.Sprintf(`created_at + INTERVAL '%d seconds'`, int(by.Seconds()))
	if o.on == mariadb {
		then = fmt.Sprintf(`created_at + INTERVAL %d SECOND`, int(by.Seconds()))
	}
	update := `UPDATE dispatcher_outbox SET created_at = ` + then
	for i := first; i < end; i++ {
		o.exec(fmt.Sprintf(`%s WHERE id = '%s-%d'`, update, o.name, i))
	}
}
