package picture_test

import (
	"fmt"
	"html/template"
	"os"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/web/ui/picture"
)

// A page keeps the struct and draws it where its template says so.
func ExampleChart() {
	throughput := picture.Chart{
		Frame:    picture.Frame{ID: "throughput", Title: "Throughput", Desc: "Callbacks per second in the last hour.", NoData: "Nothing yet."},
		TimeAxis: picture.TimeAxis{Location: time.UTC, Header: "Time"},
		Value:    func(v float64) string { return fmt.Sprintf("%g/s", v) },
	}
	page := template.Must(template.New("page").Parse("{{.Throughput.HTML}}\n"))
	if err := page.Execute(os.Stdout, struct{ Throughput picture.Chart }{throughput}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// <figure class="pic pic-lines pic-g1"><div class="pic-plot"><svg class="pic-svg" width="100%" height="200" role="img" aria-labelledby="throughput-t throughput-d"><title id="throughput-t">Throughput</title><desc id="throughput-d">Callbacks per second in the last hour.</desc><g class="pic-y"></g><g class="pic-x"></g><svg width="100%" height="200" viewBox="0 0 1000 200" preserveAspectRatio="none" overflow="visible" fill="none"><path class="pic-grid" d="M0 8.5h1000"/><path class="pic-ground" d="M0 174.5h1000"/></svg></svg><p class="pic-none">Nothing yet.</p></div></figure>
}

func ExampleCategories() {
	pending := picture.Categories{Label: "Pending per tier", Items: []picture.Category{
		{Name: "15 s", Value: 40, Href: "/ui/callbacks?tier=1"}, {Name: "3 min", Value: 10}, {Name: "10 min"},
	}}
	fmt.Println(pending.HTML())
	// Output:
	// <div class="pic pic-cats"><ul role="list" aria-label="Pending per tier"><li><a class="pic-cat" href="/ui/callbacks?tier=1"><span class="pic-cat-name">15 s</span> <b class="pic-cat-count">40</b><svg class="pic-cat-bar pic-t1" aria-hidden="true" width="100%" height="10"><rect height="10" rx="2.5" width="100%"/></svg></a></li><li><span class="pic-cat"><span class="pic-cat-name">3 min</span> <b class="pic-cat-count">10</b><svg class="pic-cat-bar pic-t1" aria-hidden="true" width="100%" height="10"><rect height="10" rx="2.5" width="25%"/></svg></span></li><li><span class="pic-cat"><span class="pic-cat-name">10 min</span> <b class="pic-cat-count">0</b><svg class="pic-cat-bar pic-t1" aria-hidden="true" width="100%" height="10"><rect class="pic-zero" height="10" width="2"/></svg></span></li></ul></div>
}

func ExampleChart_spark() {
	fmt.Println(picture.Chart{Form: picture.Spark, Series: []picture.Series{{Values: []float64{1, 3, 2}}, {Values: []float64{0, 1, 0}}}}.HTML())
	// Output:
	// <svg class="pic pic-spark" width="96" height="24" viewBox="0 0 96 24" aria-hidden="true" fill="none"><path class="pic-bar pic-bad" stroke-width="6" d="M48 23v-7.7"/><path class="pic-area pic-t1" d="M2 15.3l46-13.3 46 6.7v14.3H2z"/><path class="pic-line pic-t1" d="M2 15.3l46-13.3 46 6.7"/></svg>
}

func ExampleProgress() {
	fmt.Println(picture.Progress{
		Frame: picture.Frame{ID: "redrive", Title: "75 of 100 are done"},
		Parts: []picture.Part{{Value: 70, Tone: picture.Good}, {Value: 5, Tone: picture.Bad}}, Total: 100,
	}.HTML())
	// Output:
	// <div class="pic pic-progress"><svg class="pic-track" width="100%" height="10" role="img" aria-labelledby="redrive-t"><title id="redrive-t">75 of 100 are done</title><rect class="pic-good" height="10" x="0%" width="70%"/><rect class="pic-bad" height="10" x="70%" width="5%"/></svg></div>
}

func ExampleLadder() {
	fmt.Println(picture.Ladder{Steps: []picture.Step{
		{State: picture.Failed, Number: "1", Label: "503", Wait: "15 s"}, {State: picture.Next, Number: "2", Label: "in 12 s"},
	}}.HTML())
	// Output:
	// <div class="pic pic-ladder"><ol role="list"><li class="pic-step pic-failed"><svg class="pic pic-sign pic-failed" aria-hidden="true" width="24" height="24" viewBox="0 0 24 24" fill="none"><circle class="pic-body" cx="12" cy="12" r="10"/><path class="pic-glyph" d="M8.5 8.5l7 7m0-7l-7 7"/></svg><span class="pic-what"><span class="pic-number">1</span> 503</span> <span class="pic-wait">15 s</span></li><li class="pic-step pic-next" aria-current="step"><svg class="pic pic-sign pic-next" aria-hidden="true" width="24" height="24" viewBox="0 0 24 24" fill="none"><circle class="pic-body" cx="12" cy="12" r="10"/><path class="pic-glyph" d="M12 7v5.3l3.4 2"/></svg><span class="pic-what"><span class="pic-number">2</span> in 12 s</span></li></ol></div>
}
