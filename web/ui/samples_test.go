package ui

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// sampleCallback has failed twice and waits for its third attempt.
func sampleCallback(n int) store.Callback {
	return store.Callback{
		ID: testID(n), Project: store.DefaultProject, Kind: store.Notify, Method: "POST",
		URL: "https://user:pw@shop.example/notify?token=secret", Topic: "payment.succeeded",
		Ref: fmt.Sprintf("order-%04d", n), LockKey: "lock-1", Lane: "https://shop.example:443", LaneID: 1,
		Labels: map[string]string{"channel": "alipay"}, Policy: accept.PaymentPolicy(),
		Success: store.Success{Name: "body-success"}, State: store.Scheduled, DueAt: testNow + 600_000,
		AttemptCount: 2, AttemptSeq: 2, LastStatus: 500, LastClass: store.ClassHTTP5xx,
		CreatedAt: testNow - 200_000, UpdatedAt: testNow - 1000, PayloadID: "p", ContentType: "application/json",
		Headers: []store.Header{{Name: "X-Shop", Value: "7"}, {Name: "Authorization", Value: "Bearer hunter2"}},
	}
}

func sampleAttempt(number int) store.Attempt {
	return store.Attempt{
		CallbackID: testID(1), Number: number, Trigger: store.BySchedule, Outcome: store.AttemptFailed, Charged: true,
		Class: store.ClassRuleMismatch, Status: 200, StartedAt: testNow - 190_000 + int64(number),
		EndedAt: testNow - 189_900, DueAt: testNow - 190_001, Lateness: 1.5,
		Timings:         store.Timings{DNS: 1.2, Connect: 3, TLS: 9, FirstByte: 80, Total: 100},
		RequestHeaders:  []store.Header{{Name: "webhook-id", Value: "cb_" + testID(1)}},
		ResponseHeaders: []store.Header{{Name: "Content-Type", Value: "text/html"}}, ResponseBody: "fail",
		Rule: &store.Rule{Name: "body-success", Expected: "success", Saw: "fail"}, NextDueAt: testNow + 600_000,
	}
}

// sampleEndpoint is well.
func sampleEndpoint(n int) store.Endpoint {
	return store.Endpoint{
		ID: testID(n), Name: fmt.Sprintf("Merchant %04d", n), ExternalID: fmt.Sprintf("m-%04d", n),
		URL:         "https://bob:pw@shop.example/notify?token=hunter2",
		URLOverride: store.OverrideSameHost, Topics: []string{"payment.*", "refund.succeeded"},
		Policy: store.PolicyChoice{Name: "payment"}, Success: store.Success{Name: "body-success"}, Signer: "standard-v1",
		Headers: []store.Header{{Name: "X-Shop", Value: "7"}, {Name: "Authorization", Value: "Bearer hunter2"}},
		Rate:    store.Rate{Count: 50, Per: time.Second}, Concurrency: 16, Enabled: true, LaneID: int64(n),
		LastSuccessAt: testNow - 5000, LastFailureAt: testNow - 9_000_000,
		CreatedAt: testNow - 99_000_000, UpdatedAt: testNow - 98_000_000,
	}
}

// sampleLane has a backlog and is well.
func sampleLane(n int) control.LaneView {
	key := fmt.Sprintf("https://shop-%04d.example:443", n)
	lane := store.Lane{ID: int64(n), Key: key, Rate: store.Rate{Count: 50, Per: time.Second}}
	return control.LaneView{
		LaneBacklog: store.LaneBacklog{Lane: lane, Open: int64(7 * n), OldestDue: testNow - 90_000},
		State:       &schedule.LaneState{InFlight: 3, Concurrency: 8, Limit: 32, Health: schedule.Answering},
	}
}

const secretTemplate = `{"url":"https://bob:hunter2@shop.example/settle?token=hunter2",` +
	`"headers":{"X-Shop":"7","Authorization":"Bearer hunter2"},"topic":"settlement.daily","payload":{"a":  1}}`

func sampleSchedule(n int) store.Schedule {
	return store.Schedule{
		ID: testID(n), Project: store.DefaultProject, Name: fmt.Sprintf("settlement-%03d", n), Cron: "30 2 * * *",
		Timezone: "Asia/Shanghai", Template: secretTemplate, Missed: store.MissedOnce, Enabled: true,
		NextAt: testNow + 3_600_000, LastAt: testNow - 82_800_000, LastID: testID(7),
		CreatedAt: testNow - 9e9, UpdatedAt: testNow - 8e9,
	}
}

// sampleRedrive is a retry that goes on.
func sampleRedrive(n int) store.Redrive {
	return store.Redrive{
		ID: testID(n), Project: store.DefaultProject, Action: store.RedriveRetry, Ladder: store.Restart,
		Shown:  `{"class":"http_5xx","state":["dead"],"status_code":503,"label":{"channel":"alipay"}}`,
		Filter: store.Filter{States: []store.State{store.Dead}}, Rate: store.Rate{Count: 100, Per: time.Second},
		Actor: "admin key", Reason: "the receiver is back", State: store.RedriveRunning,
		Matched: 12_345, Done: 4_000, Failed: 12, CreatedAt: testNow - 60_000, UpdatedAt: testNow - 100,
	}
}

func sampleEntry(n int) store.AuditEntry {
	return store.AuditEntry{
		ID: testID(n), Project: store.DefaultProject, At: testNow - int64(n)*60_000,
		Actor: "support (key_" + testID(5) + ")", Action: "callback.retry", Object: testID(n),
		Reason: "the shop has mended its server", Address: "192.0.2.7",
		Before: `{"name":"Tea","rate":null}`, After: `{"name":"Coffee","rate":"5/s"}`,
	}
}

func sampleKey(n int) store.Key {
	return store.Key{
		ID: testID(n), Project: store.DefaultProject, Name: fmt.Sprintf("checkout %d", n), Hint: "4a7Q",
		Scopes: []store.Scope{store.ScopeRead}, CreatedAt: testNow - 86_400_000, LastUsedAt: testNow - 60_000,
	}
}

func sampleProcess(n int) store.Dispatcher {
	return store.Dispatcher{
		Name: fmt.Sprintf("pay-%d-%s", n, testID(n)), Host: fmt.Sprintf("pay-%d", n), Version: "1.4.2",
		Roles: "api,ui,worker", Workers: 512, InFlight: 17 * n, ClockOffset: int64(n),
		StartedAt: testNow - 3*86_400_000, SeenAt: testNow - 2000,
	}
}

// sampleSpan is the n-th span of activity: of an hour by minutes, then of a day, then of a week.
func sampleSpan(n int) store.Activity {
	i := int64(n - 1)
	for _, r := range timeRanges {
		if i >= r.n {
			i -= r.n
			continue
		}
		a := store.Activity{
			Span: r.span, At: r.span.Begin(testNow) - i*r.span.Milliseconds(),
			Accepted: 600 + 5*(i%17), Succeeded: 580 + 4*(i%13), Failed: 20 + i%11, Unknown: i % 3,
		}
		for n := range 100 {
			a.Lateness.Observe(float64(n%7) * float64(1+i%5))
		}
		return a
	}
	return store.Activity{}
}

// sampleLaneHour is an hour of a lane, of the two days that each lane has. In the last hours some failed.
func sampleLaneHour(n int) store.Activity {
	hour := int64(n-1) % 48
	a := store.Activity{
		LaneID: int64(n-1)/48 + 1, Span: store.Hour, At: hoursAgo(testNow, 48) + hour*store.Hour.Milliseconds(),
		Succeeded: 40 + hour*7%23, Unknown: hour % 17 / 16, Failed: 3 * max(hour-40, 0),
	}
	for i := range a.Succeeded {
		a.Took.Observe(float64(30 + i*4 + hour))
	}
	return a
}

func sampleDead(n int) store.DeadGroup {
	return store.DeadGroup{
		Reason: store.Exhausted, Class: store.Classes[n%len(store.Classes)], Status: 100 + n, Count: 1,
		OldestAt: testNow - 90_000_000, NewestAt: testNow - 60_000, NewestID: testID(1),
	}
}

func sampleBooks(n int) store.Books {
	dead, open := int64(n%7), int64(n%3)
	return store.Books{
		Group: fmt.Sprintf("payment.succeeded.%03d", n), Accepted: 1000 + int64(n), Dead: dead, Open: open, Canceled: 1,
		Succeeded: 999 + int64(n) - dead - open,
	}
}

func sampleHour(n int) store.DueHour {
	hour := int64(n - 1)
	return store.DueHour{At: store.Hour.Begin(testNow) + hour*3_600_000, Count: 5000 - hour*hour*7}
}

func sampleRun(n int) store.ScheduleRun {
	at := testNow - int64(n)*5000
	return store.ScheduleRun{CallbackID: testID(n), DueAt: at, FiredAt: at + 100, Trigger: store.BySchedule}
}

// A list is how a list of the data is made.
type list struct {
	sample any
	// newest: the n-th comes before those of lower numbers.
	newest bool
}

var lists = map[string]list{
	"callbacks": {sampleCallback, true}, "attempts": {sampleAttempt, false}, "endpoints": {sampleEndpoint, true},
	"lanes": {sampleLane, false}, "schedules": {sampleSchedule, true}, "redrives": {sampleRedrive, true},
	"entries": {sampleEntry, true}, "keys": {sampleKey, true}, "processes": {sampleProcess, false},
	"activity": {sampleSpan, false}, "lanehours": {sampleLaneHour, false}, "dead": {sampleDead, false},
	"books": {sampleBooks, false}, "hours": {sampleHour, false}, "runs": {sampleRun, false},
}

// set reads a line of a script that says what there is: "fail METHOD WHAT", or the name of a field of the data with
// its JSON. A list is "NAME ROW ROW…", whose first row is laid over the first sample, and so on, or "NAME N ROW
// ROW…" for N samples, over which the rows are laid one after the other, again and again. In a row {n} is the id of
// its number.
func (w *world) set(line string) error {
	name, rest, _ := strings.Cut(line, " ")
	if name == "fail" {
		method, what, _ := strings.Cut(rest, " ")
		w.fails[method] = errorOf(what)
		return nil
	}
	field := reflect.ValueOf(&w.has).Elem().FieldByNameFunc(func(s string) bool { return strings.EqualFold(s, name) })
	if !field.IsValid() {
		return fmt.Errorf("%q is nothing that there can be", name)
	}
	from, isList := lists[strings.ToLower(name)]
	if name == "payload" {
		w.has.Payload.Body = []byte(rest)
		return nil
	}
	if !isList {
		return json.Unmarshal([]byte(rest), field.Addr().Interface())
	}
	field.SetZero()
	count, rows := 0, rest
	if digits, after, _ := strings.Cut(rest, " "); digits != "" && digits[0] != '{' {
		var err error
		if count, err = strconv.Atoi(digits); err != nil {
			return err
		}
		rows = after
	}
	var overlays []json.RawMessage
	for d := json.NewDecoder(strings.NewReader(rows)); d.More(); {
		var row json.RawMessage
		if err := d.Decode(&row); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
		overlays = append(overlays, row)
	}
	for i := range cmp.Or(count, len(overlays)) {
		row := reflect.New(field.Type().Elem())
		row.Elem().Set(reflect.ValueOf(from.sample).Call([]reflect.Value{reflect.ValueOf(i + 1)})[0])
		if len(overlays) > 0 {
			overlay := bytes.ReplaceAll(overlays[i%len(overlays)], []byte("{n}"), []byte(testID(i+1)))
			if err := json.Unmarshal(overlay, row.Interface()); err != nil {
				return fmt.Errorf("%s: %w", line, err)
			}
		}
		field.Set(reflect.Append(field, row.Elem()))
	}
	if from.newest && count > 0 {
		reverse(field)
	}
	return nil
}

func reverse(list reflect.Value) {
	swap := reflect.Swapper(list.Interface())
	for i, j := 0, list.Len()-1; i < j; i, j = i+1, j-1 {
		swap(i, j)
	}
}

// errorOf is an error by its name, or "invalid FIELD MESSAGE; FIELD MESSAGE".
func errorOf(what string) error {
	known := map[string]error{
		"broken": errBroken, "late": errLate, "attempting": store.ErrAttempting, "terminal": store.ErrTerminal,
		"exists": store.ErrExists, "unavailable": store.ErrUnavailable,
		"deadline":   fmt.Errorf("list: %w", context.DeadlineExceeded),
		"rebuilding": errors.Join(errors.New("another process rebuilds it"), schedule.ErrRebuilding),
	}
	if err, ok := known[what]; ok {
		return err
	}
	var wrong store.InvalidError
	for part := range strings.SplitSeq(strings.TrimPrefix(what, "invalid "), "; ") {
		field, message, _ := strings.Cut(part, " ")
		wrong.Fields = append(wrong.Fields, store.FieldError{Field: field, Message: message})
	}
	return &wrong
}

// fixed are the texts of the data that are no text of people, but lead from one row to another.
var fixed = strings.Fields("ID Project EndpointID CallbackID LastID NewestID PayloadID Lane.Key LaneCount.Lane")

// spoil puts what is hostile wherever a sender, a receiver or an operator can write.
func spoil(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			switch {
			case !f.IsExported() || slices.Contains(fixed, f.Name) ||
				slices.Contains(fixed, v.Type().Name()+"."+f.Name):
			case f.Name == "URL":
				v.Field(i).SetString("https://shop.example/" + hostile)
			default:
				spoil(v.Field(i))
			}
		}
	case reflect.Slice:
		if body, ok := v.Interface().([]byte); ok {
			if len(body) > 0 {
				v.SetBytes([]byte(strings.Repeat(hostile, 300)))
			}
			return
		}
		for i := range v.Len() {
			spoil(v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			spoil(v.Elem())
		}
	case reflect.Map:
		if labels, ok := v.Interface().(map[string]string); ok && len(labels) > 0 {
			clear(labels)
			maps.Copy(labels, map[string]string{hostile: hostile})
		}
	case reflect.String:
		switch v.Type() {
		case reflect.TypeFor[string]():
			v.SetString(hostile)
		case reflect.TypeFor[store.JSONText]():
			v.SetString(`{"<script>":` + jsonText(hostile) + `,"url":` + jsonText(hostile) + `}`)
		}
	}
}

// testID makes the n-th id of tests.
func testID(n int) string {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	id := []byte("01KAZZZZZZ0000000000000000")
	for i := len(id) - 1; n > 0; i-- {
		id[i], n = digits[n%32], n/32
	}
	return string(id)
}
