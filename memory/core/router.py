class CoreRouter:
    pass
