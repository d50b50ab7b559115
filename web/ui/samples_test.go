package ui

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// sampleSpan returns the n-th span of activity: the spans of an hour, then of a day, then of a week.
func sampleSpan(n int) store.Activity {
	i := int64(n - 1)
	for _, r := range timeRanges {
		if of := int64(r.n) * r.spans; i >= of {
			i -= of
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

// sampleLaneHour returns an hour of a lane. Each lane has 48 hours, with failures in the last ones.
func sampleLaneHour(n int) store.Activity {
	hour := int64(n-1) % 48
	a := store.Activity{
		LaneID: int64(n-1)/48 + 1, Span: store.Hour,
		At:        hoursAgo(testNow, 48) + hour*store.Hour.Milliseconds(),
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
		OldestAt: testNow - 90_000_000, NewestAt: testNow - 60_000, OldestID: testID(2), NewestID: testID(1),
	}
}

func sampleReconciliation(n int) store.Reconciliation {
	dead, open := int64(n%7), int64(n%3)
	return store.Reconciliation{
		Group: fmt.Sprintf("payment.succeeded.%03d", n), Accepted: 1000 + int64(n), Dead: dead, Open: open,
		Canceled:  1,
		Succeeded: 999 + int64(n) - dead - open,
	}
}

func sampleDay(n int) store.ReconcileReport {
	at := time.UnixMilli(testNow).UTC().AddDate(0, 0, -n)
	from := time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
	return store.ReconcileReport{
		Day: from.Format(time.DateOnly), Timezone: "UTC", From: from.UnixMilli(),
		To: from.AddDate(0, 0, 1).UnixMilli(), RunAt: testNow - 60_000, Books: sampleReconciliation(n),
		ListGiven: true, Listed: 1000, Matched: 1000,
	}
}

func sampleItem(n int) store.ReconcileItem {
	return store.ReconcileItem{Number: int64(n), Kind: store.ItemMissing,
		RefTopic: store.RefTopic{Ref: fmt.Sprintf("order-%04d", n), Topic: "payment.succeeded"}}
}

func sampleHour(n int) store.DueHour {
	hour := int64(n - 1)
	return store.DueHour{At: store.Hour.Begin(testNow) + hour*3_600_000, Count: 5000 - hour*hour*7}
}

// computedRows are the functions for computed samples, by the name of the list.
var computedRows = map[string]any{
	"activity": sampleSpan, "lanehours": sampleLaneHour, "dead": sampleDead,
	"dayreports": sampleDay, "dayitems": sampleItem, "reconciliations": sampleReconciliation,
	"hours": sampleHour,
}

// sampleRows reads the samples of testdata/samples.txt, by the name of the list.
var sampleRows = sync.OnceValues(func() (map[string]string, error) {
	raw, err := os.ReadFile("testdata/samples.txt")
	all := make(map[string]string)
	for line := range strings.Lines(string(raw)) {
		if name, row, ok := strings.Cut(line, " "); ok && name[0] != '#' {
			all[name] = row
		}
	}
	return all, err
})

// newestFirst are the lists in which rows with higher numbers come first.
var newestFirst = []string{"callbacks", "endpoints", "schedules", "redrives", "entries", "keys"}

// withNumber replaces the placeholders for the number of a row.
func withNumber(row string, n int) string {
	row = strings.NewReplacer("{n}", testID(n), "{#}", strconv.Itoa(n), "{%04d}", fmt.Sprintf("%04d", n),
		"{%03d}", fmt.Sprintf("%03d", n)).Replace(row)
	return expandPlaceholders(row, inJSON)
}

// set applies a data line of a script: "fail METHOD ERROR", "options JSON", or a field of data with its JSON.
// A list is "NAME ROW ROW…": each row overrides fields of a sample. Or it is "NAME N ROW ROW…" for N samples;
// the rows override them in rotation. In a row {n} is the id with the row's number.
func (w *world) set(line string) error {
	name, rest, _ := strings.Cut(line, " ")
	if name == "fail" {
		method, what, _ := strings.Cut(rest, " ")
		w.fails[method] = errorOf(what)
		return nil
	}
	if name == "options" {
		return json.Unmarshal([]byte(rest), &w.Options)
	}
	field := reflect.ValueOf(&w.has).Elem().FieldByNameFunc(func(s string) bool {
		return strings.EqualFold(s, name)
	})
	if !field.IsValid() {
		return fmt.Errorf("the world has no field %q", name)
	}
	samples, err := sampleRows()
	if err != nil {
		return err
	}
	name = strings.ToLower(name)
	sample, isList := samples[name]
	switch {
	case name == "payload":
		w.has.Payload.Body = []byte(rest)
		return nil
	case !isList && computedRows[name] == nil:
		return json.Unmarshal([]byte(rest), field.Addr().Interface())
	}
	field.SetZero()
	count, rows := 0, rest
	if digits, after, _ := strings.Cut(rest, " "); digits != "" && digits[0] != '{' {
		count, err = strconv.Atoi(digits)
		if err != nil {
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
		layers := []string{withNumber(sample, i+1)}
		if from := computedRows[name]; from != nil {
			row.Elem().Set(reflect.ValueOf(from).Call([]reflect.Value{reflect.ValueOf(i + 1)})[0])
			layers = nil
		}
		if len(overlays) > 0 {
			layers = append(layers, withNumber(string(overlays[i%len(overlays)]), i+1))
		}
		for _, layer := range layers {
			if err := json.Unmarshal([]byte(layer), row.Interface()); err != nil {
				return fmt.Errorf("%s: %w", line, err)
			}
		}
		field.Set(reflect.Append(field, row.Elem()))
	}
	if slices.Contains(newestFirst, name) && count > 0 {
		reverseRows(field)
	}
	return nil
}

func reverseRows(list reflect.Value) {
	swap := reflect.Swapper(list.Interface())
	for i, j := 0, list.Len()-1; i < j; i, j = i+1, j-1 {
		swap(i, j)
	}
}

// errorOf returns an error by its name, or an InvalidError for "invalid FIELD MESSAGE; FIELD MESSAGE".
func errorOf(what string) error {
	known := map[string]error{
		"broken": errBroken, "late": errLate, "panic": errPanics, "nothing": nil,
		"attempting": store.ErrAttempting, "own": store.ErrSecondPerson,
		"terminal": store.ErrTerminal, "not found": store.ErrNotFound,
		"exists": store.ErrExists, "unavailable": store.ErrUnavailable,
		"acting": store.ErrRelayActing, "held": store.ErrRelayHeld,
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

// identifiers are the fields that link rows. People cannot write them.
var identifiers = strings.Fields("ID Project EndpointID CallbackID LastID OldestID NewestID PayloadID " +
	"Lane.Key LaneCount.Lane RelaySource.Name")

// makeHostile replaces every text that a sender, a receiver or an operator can write.
func makeHostile(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			switch {
			case !f.IsExported() || slices.Contains(identifiers, f.Name) ||
				slices.Contains(identifiers, v.Type().Name()+"."+f.Name):
			case f.Name == "URL":
				v.Field(i).SetString("https://shop.example/" + hostile)
			default:
				makeHostile(v.Field(i))
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
			makeHostile(v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			makeHostile(v.Elem())
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

// testID returns the n-th id of the tests.
func testID(n int) string {
	const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	id := []byte("01KAZZZZZZ0000000000000000")
	for i := len(id) - 1; n > 0; i-- {
		id[i], n = digits[n%32], n/32
	}
	return string(id)
}
