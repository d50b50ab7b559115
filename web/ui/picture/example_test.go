package picture_test

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/web/ui/picture"
)

// A page struct has a chart as a field, and its template calls HTML.
func ExampleChart() {
	throughput := picture.Chart{
		Frame: picture.Frame{
			ID: "throughput", Title: "Throughput", NoData: "Nothing yet.",
			Desc: "Callbacks per second in the last hour.",
		},
		TimeAxis: picture.TimeAxis{Location: time.UTC},
		Value:    func(v float64) string { return fmt.Sprintf("%g/s", v) },
	}
	page := template.Must(template.New("page").Parse("{{.Throughput.HTML}}\n"))
	var b strings.Builder
	if err := page.Execute(&b, struct{ Throughput picture.Chart }{throughput}); err != nil {
		fmt.Println(err)
	}
	fmt.Println(strings.NewReplacer("><", ">\n<", " viewBox", "\nviewBox").Replace(b.String()))
	// Output:
	// <figure class="pic pic-lines pic-g1">
	// <div class="pic-plot">
	// <svg class="pic-svg" width="100%" height="200" role="img" aria-labelledby="throughput-t throughput-d">
	// <title id="throughput-t">Throughput</title>
	// <desc id="throughput-d">Callbacks per second in the last hour.</desc>
	// <g class="pic-y">
	// </g>
	// <g class="pic-x">
	// </g>
	// <svg width="100%" height="200"
	// viewBox="0 0 1000 200" preserveAspectRatio="none" overflow="visible" fill="none">
	// <path class="pic-grid" d="M0 8.5h1000"/>
	// <path class="pic-ground" d="M0 174.5h1000"/>
	// </svg>
	// </svg>
	// <p class="pic-none">Nothing yet.</p>
	// </div>
	// </figure>
}
