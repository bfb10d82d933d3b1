"""A fitted model behind HTTP: questions and ratings under /api/v1, a page for people at /.

    serving.py   starts and stops the process            app.py       puts the parts together
    routes/      one file per topic                      schemas/     what requests and answers look like
    people.py    who is asked about: known or folded in  answers.py   library results as answers
    models.py    the model being served, and its swap    storage.py   ratings sent to the service
    limits.py, keys.py, guards.py, workers.py            what a request may cost and who may ask
    metrics.py, logs.py                                  what happened
    page/        HTML, CSS and JavaScript, no build step

Packages of the extra `server` are imported here and nowhere else.
"""
